"""``submit`` through the whole program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import torchscale


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my.yaml").write_text("experiment_name: My_Run\nmodels: gpt2\nbatch_sizes: 1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_print_shows_a_script_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = torchscale(
        folder, "submit", "my.yaml", "--nodes", "4", "--time", "2:00:00", "--benchmark.repeats=3", "--print"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=torchscale-my-run\n#SBATCH --nodes=4\n")
    assert "\n  repeats: 3\n" in done.stdout
    assert done.stderr == ""
    assert sorted(folder.rglob("*")) == before


def test_without_sbatch_the_error_is_one_line_and_the_script_is_there(folder: Path) -> None:
    done = torchscale(folder, "submit", "my.yaml", "--nodes", "2")
    assert done.returncode == 3
    assert "sbatch cannot be started" in done.stderr
    assert (folder / "results" / "My_Run.submit" / "job.sbatch").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nodes", "0"], "--nodes 0: expected 1 to"),
        (["--gpus-per-node", "0"], "--gpus-per-node 0: expected 1 to"),
        (["--time", "2h"], "--time '2h': expected"),
        (["--account", "a\nb"], "--account 'a\\nb': expected"),
        (["--sbatch-option", "wrap=id"], "--sbatch-option wrap: set by the script itself"),
        (["--trainig.seed=1"], "trainig"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(folder: Path, arguments: list[str], expected: str) -> None:
    done = torchscale(folder, "submit", "my.yaml", *arguments, "--print")
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2
