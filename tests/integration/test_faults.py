"""A table of faults through the real program: each ends in its own state, stops no other cell, and leaves nothing."""

from __future__ import annotations

import json

import pytest

from .conftest import Program

pytestmark = pytest.mark.integration

LEFT = ("incomplete", "rank 1 exited before the measurement was complete")
TABLE = {
    "die": {
        "raise": ("crashed", "rank 1: ValueError: the fault that was asked for"),
        "kill": ("killed", "rank 1 was killed by SIGKILL"),
        "segfault": ("crashed", "rank 1 crashed with SIGSEGV"),
        "oom": ("oom", "can't allocate memory"),
    },
    "mislead": {
        "leave": LEFT,
        "exit": LEFT,
        "nan": ("invalid", "was not a finite number"),
        "no_reduction": ("invalid", "gradients were not reduced"),
    },
    "hang": {"hang": ("timeout", "rank 1 was in faulty.py")},
}


@pytest.mark.parametrize("kind", TABLE)
def test_a_fault_on_one_of_two_ranks(program: Program, kind: str) -> None:
    """One sweep over the faults of a kind; the sound cell after them is measured all the same."""
    faults = TABLE[kind]
    models = [{"name": "faulty:build", "fault": fault, "rank": 1} for fault in (*faults, "none")]
    stall_seconds = 25.0 if kind == "hang" else 300.0
    config = program.config(models=models, gpu_counts=[2], launch={"stall_timeout_seconds": stall_seconds})
    done = program.run("benchmark", config, "--json")
    assert done.returncode == 1, done.stderr
    found = {cell["cell"]["model_options"]["fault"]: cell for cell in json.loads(done.stdout)["cells"]}
    assert len(found) == len(program.records()) == len(faults) + 1
    for fault, (state, reason) in faults.items():
        assert found[fault]["state"] == state, (fault, found[fault]["reason"], done.stderr)
        assert reason in found[fault]["reason"]
        assert state in done.stderr
    assert found["none"]["state"] == "ok"
    assert "Traceback" not in done.stderr
    assert program.leftovers() == []


def test_a_single_rank_that_raises_and_a_builder_that_is_not_there(program: Program) -> None:
    models = [{"name": "faulty:build", "fault": "raise"}, "faulty:hang_here_not"]
    done = program.run("benchmark", program.config(models=models, gpu_counts=[1]), "--json")
    assert done.returncode == 1
    raising, absent = (program.records()[f"{cell['cell_id']}/launch-0"] for cell in json.loads(done.stdout)["cells"])
    assert raising["state"] == "crashed"
    assert "faulty.py" in raising["failures"][0]["traceback"]
    assert raising["payload"]["ranks"] == []
    assert "faulty has no 'hang_here_not'" in absent["reason"]


def test_a_budget_that_nothing_fits_in_is_a_timeout(program: Program) -> None:
    config = program.config(models={"name": "faulty:build", "fault": "hang", "step": 1}, gpu_counts=[1])
    done = program.run("benchmark", config, "--benchmark.cell_seconds=1")
    assert done.returncode == 1
    (record,) = program.records().values()
    assert record["state"] == "timeout"
    assert program.leftovers() == []
