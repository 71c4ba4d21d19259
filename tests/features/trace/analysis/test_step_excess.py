"""Ranks by steps."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.signals import Matrix, SignalOrigin, Signals
from torchscale.features.trace.analysis.step_excess import step_excess


def signals(compute: Matrix, stages: tuple[tuple[int, ...], ...] | None = None) -> Signals:
    """What so many ranks compute in each step."""
    return Signals(
        origin=SignalOrigin.TRACE,
        ranks=tuple(range(100, 100 + len(compute))),
        step_seconds=1.0,
        steps=compute.shape[1],
        compute=compute,
        stages=stages,
    )


def test_a_slow_rank_and_a_slow_step_are_in_the_picture() -> None:
    compute = np.ones((1024, 250))
    compute[700] = 1.2
    compute[31, 101] = 3.0
    found = step_excess(signals(compute), list(range(10, 260)))
    assert found is not None
    assert len(found.ranks) <= 64
    assert len(found.steps) == 100
    rows = dict(zip(found.ranks, found.percent, strict=True))
    assert set(rows[800]) == {20}
    slow = [step for step, percent in zip(found.steps, rows[131], strict=True) if percent]
    assert slow == [10 + 100]
    assert max(rows[131]) == 200


def test_stages_are_compared_within_themselves() -> None:
    compute = np.ones((40, 3))
    compute[20:] = 5.0
    compute[25] = 6.0
    stages = (tuple(range(20)), tuple(range(20, 40)))
    found = step_excess(signals(compute, stages), [0, 1, 2])
    assert found is not None
    rows = dict(zip(found.ranks, found.percent, strict=True))
    assert rows[125] == (20, 20, 20)
    assert set(rows[121]) == {0}


def test_few_ranks_have_no_picture() -> None:
    assert step_excess(signals(np.ones((32, 5))), list(range(5))) is None
    assert step_excess(signals(np.ones((33, 24))), list(range(5))) is None
