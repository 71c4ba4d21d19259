"""``tune`` through the whole program: what is refused before anything is launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import torchscale

WORKLOAD = ("--model", "tiny-resnet", "--batch-size", "8", "--device", "cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (*WORKLOAD, "--gpus", "1", "--search", "speed"),
            "--search speed: expected one of precision, compile",
        ),
        (
            (*WORKLOAD, "--gpus", "1", "--search", "batch"),
            "--search batch: changes what is computed",
        ),
        (
            (*WORKLOAD, "--gpus", "1", "--axis", "strategy,bucket"),
            "--search strategy,bucket: bucket is an option of ddp",
        ),
        ((*WORKLOAD, "--gpus", "1", "--budget", "soon"), "--budget: 'soon' is not a duration"),
        ((*WORKLOAD, "--gpus", "1", "--launch-seconds", "0"), "--launch-seconds: 0 is not above 0"),
        ((), "no config: there is no benchmark_config.yaml here"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = torchscale(tmp_path, "tune", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_start_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tuned.yaml").write_text(
        "models: tiny-resnet\nbatch_sizes: 8\ngpu_counts: 1\ndevice: cpu\n"
    )
    done = torchscale(tmp_path, "tune", "tuned.yaml")
    assert done.returncode == 2
    assert "--output tuned.yaml: is the config to start from" in done.stderr
    elsewhere = torchscale(tmp_path, "tune", "tuned.yaml", "-o", "missing/faster.yaml")
    assert elsewhere.returncode == 2
    assert "--output missing/faster.yaml: cannot be written" in elsewhere.stderr


def test_the_help_names_every_axis(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "tune", "--help", columns=200)
    for axis in (
        "precision",
        "compile",
        "fused",
        "channels_last",
        "bucket",
        "comm_hook",
        "checkpointing",
        "workers",
        "strategy",
    ):
        assert axis in done.stdout
    assert "--allow-numerics" in done.stdout
