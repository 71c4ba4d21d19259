"""What a change says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.bounds import Basis, Bounds
from torchscale.features.compare.analysis.change import (
    ChangeVerdict,
    MetricChange,
    Reason,
    interval_end,
)
from torchscale.schema.run.metric_key import MetricKey

RATIO = LogRatio(0.1, 0.01, 4)
LOW, HIGH = LogRatio(-0.2, 0.02, 4), LogRatio(0.3, 0.03, 4)
BUSY = ("contended",)


def changed(launches: tuple[int, int] = (3, 3), **fields: Any) -> MetricChange:
    """A throughput that changed by some 10 %."""
    return MetricChange(
        MetricKey(metric=Metric.THROUGHPUT), 100.0, 110.0, RATIO, launches, **fields
    )


def test_under_equal_conditions_a_change_is_its_ratio() -> None:
    change = changed()
    assert (change.low, change.high) == (RATIO, RATIO)
    assert (change.possible, change.basis) == (None, None)
    assert change.sessions == (1, 1)


def test_under_unequal_conditions_a_change_lies_between_its_bounds() -> None:
    change = changed(conditions=BUSY, bounds=Bounds(LOW, HIGH, Basis.DELAY))
    assert LOW.interval is not None
    assert HIGH.interval is not None
    assert (change.low, change.high, change.basis) == (LOW, HIGH, Basis.DELAY)
    assert change.possible == (LOW.interval[0], HIGH.interval[1])
    one_end = changed(conditions=BUSY, bounds=Bounds(LOW, None, Basis.DIRECTION))
    assert one_end.possible == (LOW.interval[0], None)


def test_under_unequal_conditions_without_bounds_a_change_may_be_any() -> None:
    change = changed(conditions=BUSY)
    assert (change.low, change.high, change.basis) == (None, None, None)
    assert change.possible == (None, None)


def test_a_ratio_of_single_launches_has_no_ends() -> None:
    assert RATIO.interval is not None
    assert [interval_end(RATIO, place) for place in (0, 1)] == list(RATIO.interval)
    assert interval_end(LogRatio(0.1), 0) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed(verdict=ChangeVerdict.BETTER), None),
        (changed((2, 3), verdict=ChangeVerdict.SAME), None),
        (changed(), Reason.NOISE),
        (changed(conditions=BUSY), Reason.CONDITIONS),
        (changed((3, 2), conditions=BUSY), Reason.FEW_LAUNCHES),
        (changed((2, 3)), Reason.FEW_LAUNCHES),
    ],
)
def test_only_an_unclear_change_has_a_reason(change: MetricChange, reason: Reason | None) -> None:
    assert change.reason is reason


def test_a_change_has_the_metric_and_the_detail_of_its_key() -> None:
    assert (changed().metric, changed().detail) == (Metric.THROUGHPUT, "")
    key = MetricKey.model_validate("busbw/all_reduce/fp32")
    change = MetricChange(key, 1.0, 1.0, RATIO, (3, 3))
    assert (change.metric, change.detail) == (Metric.BUSBW, "all_reduce fp32")


@pytest.mark.parametrize(
    ("change", "covers"),
    [
        (changed(session_spread=0.0), True),
        (changed(sessions=(3, 3)), True),
        (changed(sessions=(1, 3)), False),
        (changed(), False),
        (changed((1, 1)), False),
        (changed((1, 2), sessions=(1, 2)), True),
        (changed((2, 1), sessions=(2, 1)), True),
    ],
)
def test_noise_between_sessions_is_covered_where_it_shows(
    change: MetricChange, *, covers: bool
) -> None:
    """A single launch on each side is a session of its own and shows none."""
    assert change.covers_sessions is covers


def test_every_verdict_is_explained() -> None:
    assert all(verdict.explanation for verdict in ChangeVerdict)
    assert "fewer than 3 launches" in ChangeVerdict.UNCLEAR.explanation
