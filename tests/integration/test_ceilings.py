"""What the machine can do, through the real program."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.campaign import cases
from tests.cli.program import torchscale
from tests.integration.conftest import FAST, Program

pytestmark = pytest.mark.integration

BUSY_PERCENT = 25.0
"""Of all cores, after a test is over: other programs use them, and no verdict can be given."""
SMALL: dict[str, Any] = {
    "collectives": {
        "operations": ["all_reduce", "pairs", "barrier"],
        "max_bytes": "4KiB",
        "iterations": 3,
    },
    "hardware": {"matmul_sizes": [64], "seconds": 0.02, "copy_bytes": "1MiB"},
}


@pytest.mark.parametrize("gpu_counts", cases([[2]], [[1, 2]]))
def test_one_config_measures_the_machine_and_the_training(
    program: Program, gpu_counts: list[int]
) -> None:
    config = program.config(
        models="tiny-resnet",
        gpu_counts=gpu_counts,
        measure=["hardware", "collectives", "memory", "training"],
        launch={"isolation": "group"},
        benchmark={**FAST, "max_steps": 10_000, "min_seconds": 1.5, "max_seconds": 2.0},
        telemetry={"interval_seconds": 0.2},
        **SMALL,
    )
    done = program.here("benchmark", config, "--json")
    assert done.returncode == 0, done.stderr
    assert program.leftovers() == []
    found = json.loads(done.stdout)
    kinds = [cell["cell"]["kind"] for cell in found["machine"]]
    counts = len(gpu_counts)
    assert kinds == ["hardware"] * counts + ["collectives"] + ["memory"] * counts
    assert {cell["state"] for cell in (*found["machine"], *found["cells"])} == {"ok"}
    for cell in found["cells"]:
        # Its peak is what was measured beside it, and the class follows from that.
        assert 0 < cell["compute"]["mfu"] < 1.5
        assert "measured matrix products" in cell["compute"]["peak"]["source"]
        assert cell["compute"]["intensity"] > 0
        assert cell["compute"]["bound"] in (
            "compute",
            "memory",
            "overhead",
            "communication",
            "input",
        )
        assert cell["figures"]["flops"]["forward"] == pytest.approx(3_172_864)
        assert cell["figures"]["joules_per_step"] is None  # no GPU
        telemetry = cell["figures"]["telemetry"]
        assert telemetry["readings"] >= 3
        assert 1.0 < telemetry["seconds"] < 6.0
        assert 0 < telemetry["cpu_busy"] <= 1
        assert telemetry["memory_used_peak_bytes"] > 0
        assert telemetry["sampler_cpu_seconds"] > 0
        assert telemetry["gpus"] == []
    rows = list(
        csv.DictReader(io.StringIO((program.directory / "results/run/summary.csv").read_text()))
    )
    assert [row["kind"] for row in rows] == [*kinds, *["training"] * counts]
    assert [bool(row["mfu"]) for row in rows] == [False] * len(kinds) + [True] * counts

    # The same command goes on: nothing is left to do, and the report has it all.
    again = program.here("benchmark", config)
    assert again.returncode == 0
    assert f"{len(kinds) + counts} done before" in again.stderr
    formats = [part for kind in ("html", "pdf", "md") for part in ("--format", kind)]
    assert program.here("report", "--source", "results/run", *formats).returncode == 0
    assert (program.directory / "results/run/report.pdf").read_bytes().startswith(b"%PDF")
    page = (program.directory / "results/run/report.md").read_text()
    for title in ("Compute", "Memory", "Peak rates", "Collectives"):
        assert f"## {title}\n" in page


def test_comm_joins_a_folder_and_is_measured_anew(program: Program) -> None:
    options = (
        "--op",
        "all_reduce,barrier",
        "-b",
        "8",
        "-e",
        "1KiB",
        "--iters",
        "3",
        "-w",
        "1",
        "-o",
        "here",
    )
    first = program.run("measure", "collectives", *options)
    assert first.returncode == 0, first.stderr
    assert "all_reduce, in place" in first.stdout
    assert "No verdict on the link" in first.stdout
    lines = [line.split() for line in first.stdout.splitlines() if " fp32 " in line]
    assert [line[0] for line in lines] == [str(8 << power) for power in range(8)]
    assert all(line[-1] == "0" for line in lines)
    again = program.here("measure", "collectives", *options)
    assert again.returncode == 0, again.stderr
    quarantined = list((program.directory / "here/quarantine").iterdir())
    assert quarantined  # set aside, not lost
    joined = program.here(
        "measure",
        "hardware",
        "--size",
        "64",
        "--seconds",
        "0.02",
        "--dtype",
        "fp32",
        "-n",
        "1",
        "-o",
        "here",
    )
    assert joined.returncode == 0, joined.stderr
    report = program.here("report", "--source", "here", "--format", "json", "--output", "-")
    kinds = [cell["cell"]["kind"] for cell in json.loads(report.stdout)["machine"]]
    assert kinds == ["hardware", "collectives"]
    assert program.leftovers() == []


@pytest.mark.quiet
def test_a_link_far_below_what_it_should_carry_fails(program: Program) -> None:
    one_size = (
        "--op all_reduce -b 16MiB -e 16MiB --iters 3 --hardware.link_bytes_per_second=1.0e+15 "
        "--json -o here"
    )
    for _ in range(10):
        judged = program.run("measure", "collectives", *one_size.split())
        if judged.returncode == 1:
            break
        refused = judged.stderr
        assert "noisy" in refused or "contended" in refused, refused
    (content,) = json.loads(judged.stdout)
    if judged.returncode == 0 and psutil.cpu_percent(interval=2.0) > BUSY_PERCENT:
        assert content["verdict"]["fits"] is None
        return
    assert content["verdict"]["fits"] is False
    assert content["verdict"]["causes"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("measure", "collectives", "--op", "all_redcue"), "all_redcue"),
        (
            ("measure", "collectives", "-b", "1MiB", "-e", "1KiB"),
            "max_bytes 1024 is below min_bytes 1048576",
        ),
        (("measure", "collectives", "--link", "nvlink9"), "nvlink9"),
        (("measure", "hardware", "--dtype", "fp7"), "fp7"),
        (("measure", "memory", "--model", "tiny-gpt2", "--limit", "lots"), "lots"),
        (("measure", "collectives", "stray"), "stray"),
    ],
)
def test_wrong_input_is_said_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = torchscale(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_one_device_is_too_few_for_a_collective(program: Program) -> None:
    done = program.here("measure", "collectives", "-n", "1")
    assert done.returncode == 2
    assert "-n 1: a collective needs at least two devices" in done.stderr


GROUP = ("--launch.isolation=group",)
"""All cells of a world size in the processes of one torchrun: less to start, for tests to which it
is the same."""


def peaks(program: Program, batches: range) -> dict[int, int]:
    """Measured peak of each batch size."""
    options = [part for batch in batches for part in ("-b", str(batch))]
    done = program.run("measure", "memory", "-m", "tiny-decoder", *options, *GROUP, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {
        cell["cell"]["training"]["batch_size"]: cell["ranks"][0]["peak_bytes"] for cell in found
    }


@pytest.mark.campaign
def test_the_search_finds_the_batch_that_trying_all_finds(program: Program) -> None:
    measured = peaks(program, range(1, 5))
    assert sorted(measured.values()) == list(measured.values())
    limit = (measured[3] + measured[4]) // 2
    search = ("--find-max-batch", "--limit", str(limit))
    done = program.run(
        "measure", "memory", "-m", "tiny-decoder", *search, *GROUP, "--json", "-o", "search"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (
        found["batch_size"] == max(batch for batch, peak in measured.items() if peak <= limit) == 3
    )
    assert [(trial["batch_size"], trial["state"]) for trial in found["trials"]] == [
        (1, "ok"), (2, "ok"), (4, "oom"), (3, "ok"),
    ]  # fmt: skip
    # What ran out of memory left nothing behind that the next trial would have had to carry.
    assert found["trials"][-1]["peak_bytes"] == measured[3]
    assert program.leftovers() == []


@pytest.mark.parametrize("isolation", cases(["auto"], ["cell", "group"]))
def test_real_out_of_memory_is_an_ordinary_end_of_a_trial(program: Program, isolation: str) -> None:
    limit = ("--limit", "10GiB", f"--launch.isolation={isolation}")
    search = ("--find-max-batch", "-b", "5", "--largest", "6")
    done = program.here("measure", "memory", "-m", "faulty:hungry", *search, *limit, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["batch_size"] == 5
    (failed,) = (trial for trial in found["trials"] if trial["state"] == "oom")
    assert failed["batch_size"] == 6
    assert "memory" in failed["reason"]
    assert program.leftovers() == []


@pytest.mark.campaign
def test_strategies_share_out_what_ranks_hold(program: Program) -> None:
    strategies = "ddp,zero1,fsdp,tensor,pipeline"
    done = program.run(
        "measure",
        "memory",
        "-m",
        "tiny-decoder",
        "-b",
        "8",
        "--strategy",
        strategies,
        "-n",
        "2",
        *GROUP,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    found = {
        cell["cell"]["training"]["strategy"]: cell["ranks"] for cell in json.loads(done.stdout)
    }

    def whole(strategy: str, part: str) -> int:
        return sum(rank["parts"][part] for rank in found[strategy])

    parameters = found["ddp"][0]["parts"]["parameters"]
    states = found["ddp"][0]["parts"]["optimizer_states"]
    assert states == pytest.approx(2 * parameters, rel=0.01)
    assert whole("ddp", "gradients") == 2 * parameters
    assert whole("zero1", "parameters") == 2 * parameters
    assert whole("zero1", "optimizer_states") == pytest.approx(states, rel=0.01)
    for split in ("fsdp", "pipeline"):
        assert whole(split, "parameters") == pytest.approx(parameters, rel=0.01)
        assert whole(split, "gradients") == pytest.approx(parameters, rel=0.01)
        assert whole(split, "optimizer_states") == pytest.approx(states, rel=0.02)
    assert (
        parameters < whole("tensor", "parameters") < 2 * parameters
    )  # norms and embeddings are whole on both
    for strategy, ranks in found.items():
        for rank in ranks:
            # A split embedding's gradient arrives whole before the optimizer takes its part of it.
            enough = rank["parts"]["gradients"] >= rank["parts"]["parameters"]
            assert (
                enough
                if strategy == "tensor"
                else rank["parts"]["gradients"] == rank["parts"]["parameters"]
            )
            assert 0 < rank["parts"]["activations"] < rank["peak_bytes"]


def test_no_batch_fits_and_no_limit_on_a_cpu(program: Program) -> None:
    none = program.here(
        "measure", "memory", "-m", "tiny-decoder", "--find-max-batch", "--limit", "1MiB"
    )
    assert none.returncode == 1
    assert "No batch of tiny-decoder fits" in none.stdout
    unlimited = program.here(
        "measure", "memory", "-m", "tiny-decoder", "--find-max-batch", "--device", "cpu"
    )
    assert unlimited.returncode == 3
    assert "--limit" in unlimited.stderr


@pytest.mark.campaign
def test_batches_beyond_one_that_ran_out_of_memory_are_skipped_where_asked(
    program: Program,
) -> None:
    content: dict[str, Any] = {
        "models": "tiny-decoder",
        "batch_sizes": [2, 4, 8],
        "gpu_counts": [1],
        "measure": ["memory"],
        "memory": {"limit": "20MiB"},
        "launch": {"isolation": "group"},
    }
    done = program.run(
        "benchmark", program.config(**content), "--benchmark.skip_larger_batches=true", "--json"
    )
    assert done.returncode == 1  # one of them did run out of memory
    cells = json.loads(done.stdout)["machine"]
    assert [cell["state"] for cell in cells] == ["oom", "skipped", "skipped"]
    assert cells[2]["reason"] == "batch 2 ran out of memory"
    page = program.run("report", "--source", "results/run", "--format", "md", "--output", "-")
    assert "smallest out of memory" in page.stdout


def test_a_dry_run_predicts_memory(program: Program) -> None:
    config = program.config(models="tiny-decoder", batch_sizes=[2, 1_000_000], gpu_counts=[1])
    done = program.here("benchmark", config, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    small, huge = json.loads(done.stdout)["cells"]
    assert small["predicted_to_fit"] is True
    assert 10 << 20 < small["predicted_peak_bytes"] < 100 << 20
    assert huge["predicted_to_fit"] is False
    assert not (program.directory / "results").exists()
