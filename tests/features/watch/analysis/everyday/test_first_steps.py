"""First steps that take long."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.everyday.made import FIRST, Job, line
from torchscale.features.watch.analysis.everyday.first_steps import find_slow_first_steps
from torchscale.features.watch.analysis.evidence import Compilation
from torchscale.features.watch.analysis.step_log import StepLog


def log_of(job: Job) -> StepLog:
    log = StepLog(tuple(range(job.ranks)))
    log.add(job.table())
    return log


def test_first_steps_cost_what_they_take_beyond_later_ones() -> None:
    job = Job(2).add("start", slice(None), [0, 3], 20.0)
    compiled = {
        0: [
            Compilation(0, 0, 15.0, "f", "a.py", 1, ""),
            Compilation(3, 0, 14.0, "f", "a.py", 1, ""),
        ]
    }
    found = find_slow_first_steps(log_of(job), job.evidence(compilations=compiled), FIRST)

    assert found is not None
    assert found.cost_percent == 0.0
    assert found.summary.startswith("the first 10 steps take 41.5 s")
    assert found.summary.endswith("% of the steps so far")
    assert "torch.compile took 29.0 s of them" in found.evidence
    assert "TORCHINDUCTOR_CACHE_DIR" in found.advice


def test_a_rank_that_takes_long_in_them_is_named_with_its_line() -> None:
    job = Job(2).add("cache", 1, [0, 1], 1.5).at("cache", line("train.py:40 fill_cache"))
    found = find_slow_first_steps(log_of(job), job.evidence(), FIRST)

    assert found is not None
    assert found.rank == 1
    assert found.summary.startswith("the others wait for rank 1 in the first 10 steps: they take")
    assert found.advice == "look at train.py:40 (fill_cache) first, which the other ranks do not do"


def test_seconds_of_one_rank_that_all_take_are_none() -> None:
    job = Job(2).add("cache", slice(None), [0, 1], 1.5)
    assert find_slow_first_steps(log_of(job), job.evidence(), FIRST) is None


@pytest.mark.parametrize(("steps", "seconds"), [([0], 5.0), ([20, 30], 20.0)])
def test_a_start_of_seconds_and_later_steps_are_none(steps: list[int], seconds: float) -> None:
    job = Job(2).add("start", slice(None), steps, seconds)
    assert find_slow_first_steps(log_of(job), job.evidence(), FIRST) is None


def test_a_start_that_is_little_of_a_long_job_is_none() -> None:
    job = Job(2, 12_000).add("start", slice(None), [0], 12.0)
    assert find_slow_first_steps(log_of(job), (), FIRST) is None
