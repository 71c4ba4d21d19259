from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from torchscale.features.compare.analysis.operators import OperatorFate, compare_recorded
from torchscale.features.trace.analysis.operators import MeanRecordedStep, OperatorUse


def recorded(
    seconds: float, uses: Mapping[str, tuple[float, float]], communication: float = 0.0
) -> MeanRecordedStep:
    """A step with these operators: calls and seconds of all of them."""
    return MeanRecordedStep(
        10,
        seconds,
        {name: OperatorUse(*use) for name, use in uses.items()},
        {"all_reduce 1.00 MiB": OperatorUse(1.0, communication)},
    )


BEFORE = recorded(
    0.1,
    {"mm": (4, 0.04), "sqrt": (2, 0.01), "relu": (4, 0.004), "add": (2, 0.002), "cat": (2, 0.01)},
    0.005,
)
AFTER = recorded(
    0.12,
    {
        "mm": (4, 0.05),
        "rsqrt": (2, 0.002),
        "relu": (4, 0.0042),
        "add": (8, 0.008),
        "cat": (2, 0.008),
    },
    0.009,
)


def test_what_is_new_gone_slower_or_called_more_is_told() -> None:
    found = compare_recorded(BEFORE, AFTER)
    assert {one.name: one.fate for one in found.operators} == {
        "mm": OperatorFate.SLOWER,
        "sqrt": OperatorFate.GONE,
        "rsqrt": OperatorFate.NEW,
        "relu": OperatorFate.ALIKE,
        "add": OperatorFate.MORE_CALLS,
        "cat": OperatorFate.FASTER,
    }
    back = compare_recorded(AFTER, BEFORE)
    fates = {one.name: one.fate for one in back.operators}
    assert fates["add"] is OperatorFate.FEWER_CALLS
    assert fates["mm"] is OperatorFate.FASTER


def test_a_tenth_more_calls_are_more_and_the_time_is_that_of_as_many() -> None:
    before = recorded(
        0.1, {"mul": (4, 0.004), **dict.fromkeys(("exp", "log", "sin", "cos"), (20, 0.02))}
    )
    after = recorded(
        0.1,
        {
            "mul": (5, 0.005),
            "exp": (21, 0.0226),
            "log": (21, 0.0235),
            "sin": (21, 0.0185),
            "cos": (21, 0.0192),
        },
    )
    fates = {one.name: one.fate for one in compare_recorded(before, after).operators}
    assert fates == {
        "mul": OperatorFate.MORE_CALLS,
        "exp": OperatorFate.ALIKE,
        "log": OperatorFate.SLOWER,
        "sin": OperatorFate.FASTER,
        "cos": OperatorFate.ALIKE,
    }
    assert {calls: fate_of(calls) for calls in (8, 9, 11, 12)} == {
        8: OperatorFate.FEWER_CALLS,
        9: OperatorFate.ALIKE,
        11: OperatorFate.ALIKE,
        12: OperatorFate.MORE_CALLS,
    }


def fate_of(calls: int) -> OperatorFate:
    """Of an operator that was called ten times, for a millisecond each."""
    sides = [recorded(0.1, {"mul": (count, 0.001 * count)}) for count in (10, calls)]
    (change,) = compare_recorded(*sides).operators
    assert list(change.calls) == [10, calls]
    return change.fate


def test_the_largest_difference_comes_first() -> None:
    names = [one.name for one in compare_recorded(BEFORE, AFTER).operators]
    assert names == ["mm", "sqrt", "add", "cat", "rsqrt", "relu"]


def test_differences_sum_to_that_of_the_step() -> None:
    found = compare_recorded(BEFORE, AFTER)
    parts = [one.seconds for one in (*found.operators, *found.collectives)]
    rest = found.after.rest - found.before.rest
    assert math.fsum([*parts, rest]) == pytest.approx(0.02)


def test_recordings_of_other_ranks_say_of_which() -> None:
    some = replace(BEFORE, ranks=1, job_ranks=8)
    found = [
        compare_recorded(some, replace(AFTER, ranks=ranks, job_ranks=of)).other_ranks
        for ranks, of in ((1, 8), (1, 2), (2, 8))
    ]
    assert found == ["", "1 of 8 ranks against 1 of 2", "1 of 8 ranks against 2 of 8"]
