"""Checkpoints through the real program: figures, files removed, Ctrl-C in the middle of a save."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.integration.conftest import CATALOGUED, Program

pytestmark = pytest.mark.integration

WAIT_SECONDS = 90


def config(program: Program, disk: Path, **checkpoint: object) -> str:
    return program.config(
        models=CATALOGUED,
        gpu_counts=[2],
        measure=["checkpoint"],
        parallel={"strategy": "fsdp"},
        checkpoint={"path": str(disk), "repeats": 2, "steps": 2, **checkpoint},
    )


@pytest.mark.slow
def test_a_checkpoint_is_measured_and_leaves_nothing(program: Program, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = program.here("benchmark", config(program, disk), "--json")
    assert done.returncode == 0, done.stderr
    assert "saved at" in done.stderr
    assert program.leftovers() == []
    assert list(disk.iterdir()) == []
    (cell,) = json.loads(done.stdout)["machine"]
    figures = cell["figures"]
    assert [len(figures[name]) for name in ("saves", "loads", "async_saves")] == [2, 2, 2]
    assert figures["payload_bytes"] >= figures["state_bytes"]
    assert figures["async_stop_seconds"] <= figures["durable_seconds"]
    # A disk of memory cannot be proved cold; on others it must be.
    proved = figures["loads"][0]["cold"] == "proved"
    assert (figures["cold_bytes_per_second"] is not None) == proved
    assert ("not_cold" in cell["flags"]) != proved
    assert program.here("report", "results/run", "--format", "md").returncode == 0
    assert "## Checkpoints\n" in (program.directory / "results/run/report.md").read_text()


@pytest.mark.slow
def test_ctrl_c_within_a_save_leaves_no_file(program: Program, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    process = program.start("benchmark", config(program, disk, repeats=1000))
    began = time.monotonic()
    while not list(disk.glob("*/save-*/*.distcp")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < WAIT_SECONDS
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert list(disk.iterdir()) == []
    assert program.leftovers() == []


def test_a_directory_that_is_not_there_is_said_before_anything_starts(
    program: Program, tmp_path: Path
) -> None:
    done = program.here("benchmark", config(program, tmp_path / "none"), "--dry-run")
    assert f"checkpoint.path: {tmp_path / 'none'}: not a directory" in done.stdout + done.stderr
