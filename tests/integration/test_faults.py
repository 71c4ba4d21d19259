"""A table of faults through the real program: each ends in its own state, stops no other cell, and leaves nothing."""

from __future__ import annotations

import pytest

from .conftest import Program

pytestmark = pytest.mark.integration

CASES = [
    ("raise", "crashed", "rank 1: ValueError: the fault that was asked for"),
    ("kill", "killed", "rank 1 was ended by SIGKILL"),
    ("segfault", "crashed", "rank 1 died of SIGSEGV"),
    ("leave", "incomplete", "rank 1 left before the measurement was done"),
    ("exit", "incomplete", "rank 1 left before the measurement was done"),
    ("hang", "timeout", "rank 1 was in faulty.py"),
    ("oom", "oom", "can't allocate memory"),
    ("nan", "invalid", "was not a finite number"),
    ("no_reduction", "invalid", "gradients were not reduced"),
]


@pytest.mark.parametrize(("fault", "state", "reason"), CASES, ids=[case[0] for case in CASES])
def test_a_fault_on_one_of_two_ranks(program: Program, fault: str, state: str, reason: str) -> None:
    sick = {"name": "faulty:build", "fault": fault, "rank": 1}
    healthy = {"name": "faulty:build", "fault": "none", "rank": 1}
    stall_seconds = 25.0 if fault == "hang" else 300.0
    config = program.config(models=[sick, healthy], gpu_counts=[2], launch={"stall_timeout_seconds": stall_seconds})
    done = program.run("benchmark", config)
    assert done.returncode == 1, done.stderr
    records = list(program.records().values())
    assert len(records) == 2
    failed = next(record for record in records if record["state"] != "ok")
    assert failed["state"] == state, failed["reason"] + failed["log_tail"]
    assert reason in failed["reason"]
    assert [record["state"] for record in records if record is not failed] == ["ok"]
    assert state in done.stderr
    assert "Traceback" not in done.stderr
    assert program.leftovers() == []


def test_a_single_rank_that_raises_is_told_with_its_line(program: Program) -> None:
    config = program.config(models={"name": "faulty:build", "fault": "raise"}, gpu_counts=[1])
    done = program.run("benchmark", config)
    assert done.returncode == 1
    (record,) = program.records().values()
    assert record["state"] == "crashed"
    assert "faulty.py" in record["failures"][0]["traceback"]
    assert record["ranks"] == []


def test_a_builder_that_breaks_the_contract(program: Program) -> None:
    config = program.config(models="faulty:hang_here_not", gpu_counts=[1])
    done = program.run("benchmark", config)
    assert done.returncode == 1
    (record,) = program.records().values()
    assert "faulty has no 'hang_here_not'" in record["reason"]


def test_a_budget_that_nothing_fits_in_is_a_timeout(program: Program) -> None:
    config = program.config(models={"name": "faulty:build", "fault": "hang", "step": 1}, gpu_counts=[1])
    done = program.run("benchmark", config, "--benchmark.cell_seconds=1")
    assert done.returncode == 1
    (record,) = program.records().values()
    assert record["state"] == "timeout"
    assert program.leftovers() == []
