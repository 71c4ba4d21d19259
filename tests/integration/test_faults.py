"""A table of faults through the real program: each ends in its own state, stops no other cell, and
leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.campaign import cases, tell_fault

from .conftest import FAST, Program

pytestmark = pytest.mark.integration

SURE = {**FAST, "max_seconds": 60.0}
"""At least its ten steps are measured, however slow the machine is, so that the fault in the
twelfth pass strikes."""
LEFT = ("incomplete", "rank 1 exited before the measurement was complete")
HANGS = ("timeout", "rank 1 never called it; it is in faulty.py")
FAULTS = {
    "raise": ("crashed", "rank 1: ValueError: the fault that was asked for"),
    "kill": ("killed", "rank 1 was killed by SIGKILL"),
    "segfault": ("crashed", "rank 1 crashed with SIGSEGV"),
    "oom": ("oom", "can't allocate memory"),
    "leave": LEFT,
    "exit": LEFT,
    "nan": ("invalid", "was not a finite number"),
    "no_reduction": ("invalid", "gradients were not reduced"),
    "uneven": (
        "crashed",
        "rank 1 received ",
    ),  # of which collective, where rank 0 lived to tell; else its size
    "hang": HANGS,
    "deaf": HANGS,
}


@pytest.mark.parametrize(
    ("isolation", "kinds"),
    [
        # That a rank leaves, or finds no memory, is in tests/launch/agents/test_elastic.py and
        # test_ceilings.py as well. The last two end like sound ones, and what they found is in the
        # record.
        pytest.param("auto", ["kill", "hang", "nan", "no_reduction"], id="forks"),
        *cases(
            [],
            [
                # A torchrun of each launch: its killed rank is in tests/launch/test_torchrun.py, a
                # hang below it in test_nodes.py.
                pytest.param("cell", ["kill", "hang", "deaf"], id="end"),
                pytest.param("group", ["nan", "no_reduction"], id="mislead"),
                pytest.param(
                    "cell", ["oom", "leave", "raise", "segfault", "exit", "uneven"], id="die"
                ),
            ],
        ),
    ],
)
def test_a_fault_on_one_of_two_ranks(
    program: Program,
    isolation: str,
    kinds: list[str],
    record_property: Callable[[str, object], None],
) -> None:
    """One sweep over faults; the sound cell after them is measured all the same."""
    models = [{"name": "faulty:build", "fault": fault, "rank": 1} for fault in (*kinds, "none")]
    hangs = {"hang", "deaf"}.intersection(kinds)
    launch = {"stall_timeout_seconds": 25.0 if hangs else 300.0, "isolation": isolation}
    done = program.here(
        "benchmark",
        program.config(models=models, gpu_counts=[2], launch=launch, benchmark=SURE),
        "--json",
    )
    assert done.returncode == 1, done.stderr
    found = {
        cell["cell"]["model_options"]["fault"]: cell for cell in json.loads(done.stdout)["cells"]
    }
    assert len(found) == len(program.records()) == len(kinds) + 1
    for fault in kinds:
        state, reason = FAULTS[fault]
        seen = f"{found[fault]['state']}: {found[fault]['reason']}"
        tell_fault(
            record_property,
            f"a rank: {fault} ({isolation})",
            "faulty.py on rank 1 of 2",
            f"{state}: {reason}",
            seen,
        )
        assert found[fault]["state"] == state, (fault, found[fault]["reason"], done.stderr)
        assert reason in found[fault]["reason"]
        assert state in done.stderr
    assert found["none"]["state"] == "ok"
    assert "Traceback" not in done.stderr
    assert program.leftovers() == []


def test_a_builder_that_is_not_there_is_found_before_the_sweep(program: Program) -> None:
    done = program.here("benchmark", program.config(models="faulty:hang_here_not", gpu_counts=[1]))
    assert done.returncode == 3
    assert "faulty has no 'hang_here_not'" in done.stderr
    assert program.records() == {}


def test_a_budget_that_nothing_fits_in_is_a_timeout(program: Program) -> None:
    config = program.config(
        models={"name": "faulty:build", "fault": "hang", "step": 1}, gpu_counts=[1]
    )
    done = program.here("benchmark", config, "--benchmark.cell_seconds=1")
    assert done.returncode == 1
    (record,) = program.records().values()
    assert record["state"] == "timeout"
    assert program.leftovers() == []
