"""Compilations while the job trains: where, why, what they cost; and none in the first steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.features.watch.analysis.everyday.made import Job
from torchscale.features.watch.analysis.everyday.recompilation import find_recompilations
from torchscale.features.watch.analysis.evidence import Compilation
from torchscale.schema.profiles.finding import Confidence, FindingKind

SIZES = "0/{}: tensor 'x' size mismatch at index 1. expected 16, actual {}"


def compiling(
    job: Job, row: int | slice, steps: Iterable[int], seconds: float = 1.0, reason: str = SIZES
) -> list[Compilation]:
    steps = list(steps)
    job.add(f"compile {len(job.parts)}", row, steps, seconds)
    end_ns = job.table().end_ns
    return [
        Compilation(
            step=step,
            began_ns=int(end_ns[step] - seconds * 1e9),
            seconds=seconds,
            function="forward",
            file="/job/model.py",
            line=31,
            reason=reason.format(number, 20 + number),
        )
        for number, step in enumerate(steps)
    ]


def test_recompilation_has_function_reason_cost_rank_and_period() -> None:
    job = Job(2)
    compiled = compiling(job, 1, range(50, 600, 60))
    (cause,) = find_recompilations(job.watched(compilations={1: compiled}))
    found = cause.finding

    assert (found.kind, found.rank, found.period_steps) == (FindingKind.RECOMPILATION, 1, 60)
    assert found.confidence is Confidence.HIGH
    assert found.cost_seconds == pytest.approx(10 / 590)
    assert "forward (model.py:31) most: 10.0 s" in found.summary
    assert "on rank 1 alone, and the others wait" in found.summary
    assert found.evidence[0].startswith(
        "10 compilations after the first 10 steps, in steps 50, 110"
    )
    assert "10 times: tensor 'x' size mismatch at index 1" in found.evidence
    assert "mark_dynamic" in found.advice
    ((line, seconds),) = cause.lines
    assert (line.file, line.line, line.function) == ("/job/model.py", 31, "forward")
    assert seconds == pytest.approx(10 / 590)
    assert cause.by_column.sum() == pytest.approx(10.0)


def test_ranks_that_compile_in_the_same_steps_cost_it_once() -> None:
    job = Job(2)
    compiled = compiling(job, slice(None), range(50, 600, 60))
    (cause,) = find_recompilations(job.watched(compilations={0: compiled, 1: compiled}))

    assert cause.finding.rank is None
    assert cause.finding.cost_seconds == pytest.approx(10 / 590)
    assert not any("different times" in text for text in cause.finding.evidence)


def test_ranks_that_compile_at_different_times_cost_the_sum() -> None:
    job = Job(2)
    first = compiling(job, 0, range(50, 600, 60))
    second = compiling(job, 1, range(80, 600, 60))
    first = compiling_again(job, first)
    (cause,) = find_recompilations(job.watched(compilations={0: first, 1: second}))

    assert cause.finding.cost_seconds == pytest.approx(19 / 590)
    assert any("compile at different times" in text for text in cause.finding.evidence)


def compiling_again(job: Job, compiled: list[Compilation]) -> list[Compilation]:
    """The same, when it was in the job as it became."""
    end_ns = job.table().end_ns
    return [replace(one, began_ns=int(end_ns[one.step] - one.seconds * 1e9)) for one in compiled]


def test_what_torch_gave_up_on_is_told() -> None:
    job = Job(2)
    compiled = compiling(job, slice(None), range(50, 600, 60))
    compiled[-1] = replace(compiled[-1], has_failed=True)
    (cause,) = find_recompilations(job.watched(compilations={0: compiled, 1: compiled}))

    assert "not compiled any more, runs as it is: forward (model.py:31)" in cause.finding.evidence
    assert "recompile_limit" in cause.finding.advice


def test_what_is_compiled_for_the_first_time_later_is_no_guard_s() -> None:
    job = Job(2)
    compiled = compiling(job, slice(None), [200], seconds=8.0, reason="")
    (cause,) = find_recompilations(job.watched(compilations={0: compiled, 1: compiled}))

    assert "compiles while" in cause.finding.summary
    assert cause.finding.confidence is Confidence.MEDIUM


@pytest.mark.parametrize(("steps", "seconds"), [([-1, 0, 2, 9], 20.0), ([300], 0.1)])
def test_compilations_of_the_first_steps_and_short_ones_are_none(
    steps: list[int], seconds: float
) -> None:
    job = Job(2)
    compiled = compiling(job, slice(None), [max(0, step) for step in steps], seconds)
    compiled = [replace(one, step=step) for one, step in zip(compiled, steps, strict=True)]

    assert find_recompilations(job.watched(compilations={0: compiled, 1: compiled})) == []
