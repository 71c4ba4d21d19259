"""Parts of a step, by the moment that came last."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.analysis.exchanges.events import MomentKind, Moments
from torchscale.features.watch.analysis.step_parts import (
    NO_BEGINS,
    OWN,
    PARTS,
    PartBegins,
    StepShares,
    mean_shares,
)

OF_A_STEP = {
    MomentKind.STEP: 0,
    MomentKind.DATA: 40,
    MomentKind.DATA_END: 50,
    MomentKind.REPLICATED: 60,
    MomentKind.DRAIN: 65,
    MomentKind.BACKWARD: 80,
    MomentKind.BACKWARD_END: 95,
}
"""A step of 100: 40 after the optimizer, 10 loading, 10 after that, 20 forward, 15 backward, 5."""


def begins(steps: int, *waits: int) -> PartBegins:
    pairs = [(100 * step + at, kind) for step in range(steps) for kind, at in OF_A_STEP.items()]
    time, kind = np.array([*pairs, (100 * steps, MomentKind.STEP)], np.int64).T
    moments = Moments(time, kind, np.zeros_like(time))
    return PartBegins.of(moments, np.array(waits, np.int64))


def told(parts: StepShares, *times: int) -> list[str]:
    return [OWN[part] for part in parts.at(np.array(times))]


def test_each_time_is_of_the_part_that_began_last() -> None:
    parts = StepShares(begins(2), np.array([0, 100, 200]))
    assert told(parts, 10, 55, 67, 90, 99, 110) == [
        "after the optimizer's step",
        "after loading",
        "in the forward pass",
        "in the backward pass",
        "after the backward pass",
        "after the optimizer's step",
    ]


def test_parts_have_their_shares_of_a_step() -> None:
    parts = StepShares(begins(2), np.array([0, 100, 200]))
    shares = mean_shares(parts.shares(np.array([10, 150])))
    assert shares == pytest.approx([0.4, 0.2, 0.15, 0.05, 0.1, 0.1, 0, 0], abs=0.003)


def test_steps_that_end_within_a_part_share_it() -> None:
    """Rounds of collectives are steps of a program without an optimizer of torch."""
    parts = StepShares(begins(2), np.array([20, 120]))
    (first, *_) = mean_shares(parts.shares(np.array([30])))
    assert first == pytest.approx(0.4, abs=0.003)


def test_without_moments_a_step_is_one_part() -> None:
    parts = StepShares(NO_BEGINS, np.array([0, 100]))
    assert parts.at(np.array([50])).tolist() == [0]
    assert mean_shares(parts.shares(np.array([50]))) == pytest.approx([1.0] + [0.0] * (PARTS - 1))


def test_what_lies_outside_of_the_steps_has_no_shares() -> None:
    parts = StepShares(begins(1), np.array([0, 100]))
    assert parts.shares(np.array([-5, 100])).tolist() == [0, 0]


def test_a_wait_lasts_until_the_next_moment() -> None:
    parts = StepShares(begins(1, 90), np.array([0, 100]))
    assert parts.at(np.array([85, 92, 97])).tolist() == [2, 6, 3]


def test_parts_go_on_in_the_next_stretch() -> None:
    early, late = begins(2), PartBegins(np.array([100, 140]), np.array([2, 3]))
    both = early.until(100, late)
    assert both.time.tolist()[-3:] == [95, 100, 140]
    assert both.part.tolist()[-2:] == [2, 3]
