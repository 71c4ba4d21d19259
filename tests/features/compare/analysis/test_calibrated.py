from __future__ import annotations

from dataclasses import replace

import pytest

from tests.factories import cells
from tests.features.compare.analysis.test_calibrate import A_YEAR, ONE_IN_20, a_a_runs
from tests.features.compare.analysis.test_compare import result, side, throughput
from torchscale.config.choices import FailOn, MatchKey, Metric
from torchscale.features.compare.analysis.calibrate import calibrate
from torchscale.features.compare.analysis.change import ChangeVerdict, Reason
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.gate import gate
from torchscale.features.compare.merged import calibrated_baseline
from torchscale.features.compare.rate import AlarmRate
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.schema.run.result_set import ResultSet

SLOWER_BEYOND, SLOWER_WITHIN = 0.7, 0.98


def baseline(rate: AlarmRate = ONE_IN_20, planned: int = 1, **changes: object) -> ResultSet:
    """Calibrated from 20 runs that scatter by 2 %."""
    runs = a_a_runs(20, planned=planned, **changes)  # type: ignore[arg-type]
    return calibrated_baseline(runs, calibrate(runs, (), rate))


def gated(pair: Pair) -> int:
    return gate(ComparisonReport((pair,), (), ("a", "b")), FailOn.REGRESSION).exit_code


def new(*rates: float, planned: int = 1, **changes: object) -> ResultSet:
    of = cells(batch_sizes=[8 * (place + 1) for place in range(planned)], gpu_counts=[1])
    return side(*(result(cell, rates, **changes) for cell in of))  # type: ignore[arg-type]


def test_one_launch_beyond_the_threshold_is_worse_and_within_it_no_alarm() -> None:
    slow, same, fast = (
        compare(baseline(), new(100 * by)) for by in (SLOWER_BEYOND, SLOWER_WITHIN, 1.5)
    )
    assert throughput(slow).verdict is ChangeVerdict.WORSE
    assert (gated(slow), gated(same), gated(fast)) == (1, 0, 0)
    assert throughput(same).verdict is ChangeVerdict.SAME
    assert same.overall[0].verdict is ChangeVerdict.SAME
    assert throughput(fast).verdict is ChangeVerdict.BETTER
    assert throughput(same).adjusted_p is None, "p does not decide"
    assert not same.missing(())


def test_the_threshold_is_that_of_the_launches_of_the_new_run() -> None:
    base = baseline()
    assert base.calibration is not None
    scatter = base.calibration.cells[0]
    for count in (1, 3, 5):
        change = throughput(compare(base, new(*[100.0] * count)))
        assert change.limit == pytest.approx(scatter.threshold_of(count))


def test_a_threshold_that_is_given_wins() -> None:
    pair = compare(baseline(), new(98.0, 98.1, 97.9), threshold=0.001)
    assert throughput(pair).limit is None
    assert pair.overall[0].limit is None


def test_the_mean_over_cells_is_judged_by_its_own_threshold() -> None:
    base = baseline(planned=3)
    assert base.calibration is not None
    pair = compare(base, new(100 * SLOWER_BEYOND, planned=3))
    (overall,) = (one for one in pair.overall if one.metric is Metric.THROUGHPUT)
    assert overall.limit == pytest.approx(base.calibration.overall[0].threshold_of(1))
    assert (overall.verdict, overall.cells, overall.withheld) == (ChangeVerdict.WORSE, 3, 0)
    part = compare(base, new(100 * SLOWER_BEYOND, planned=2))
    (overall,) = (one for one in part.overall if one.metric is Metric.THROUGHPUT)
    limits = [change.limit for cell in part.cells for change in cell.changes if change.limit]
    assert overall.limit == pytest.approx(limits[0]), "cells of equal thresholds"


def test_a_cell_on_another_device_and_a_metric_that_was_not_calibrated_keep_their_rule() -> None:
    other = compare(baseline(), new(70.0, device="NVIDIA A100"))
    assert throughput(other).limit is None
    assert throughput(other).reason is Reason.FEW_LAUNCHES
    found = compare(baseline(), new(100.0)).cells[0].changes
    assert [change.metric for change in found if change.limit is not None] == [Metric.THROUGHPUT]


def test_disturbed_runs_are_judged_as_they_are_where_a_a_runs_were_disturbed() -> None:
    disturbed = new(100 * SLOWER_BEYOND, flags=("contended",))
    known = compare(baseline(flags=("contended",)), disturbed)
    assert throughput(known).verdict is ChangeVerdict.WORSE
    assert throughput(known).conditions == ()


def test_a_disturbance_that_no_a_a_run_had_leaves_a_loss_unclear_and_says_so() -> None:
    pair = compare(baseline(), new(100 * SLOWER_BEYOND, flags=("throttled",)))
    change = throughput(pair)
    assert (change.verdict, change.reason) == (ChangeVerdict.UNCLEAR, Reason.CONDITIONS)
    assert pair.overall[0].reason is Reason.CONDITIONS
    assert gated(pair) == 1, "a loss of a quarter is not excluded"


def test_a_wide_threshold_does_not_fail_the_gate_by_itself() -> None:
    base = baseline(A_YEAR, spread=0.1)
    pair = compare(base, new(75.0))
    limit = pair.overall[0].limit
    assert limit is not None
    assert limit > 0.25
    assert gated(pair) == 0


def test_a_cell_that_nothing_bounds_is_withheld_from_the_mean_and_fails_no_gate() -> None:
    found = new(97.0, planned=3)
    throttled, *others = found.cells
    launches = tuple(one.model_copy(update={"flags": ("throttled",)}) for one in throttled.launches)
    throttled = throttled.model_copy(update={"flags": ("throttled",), "launches": launches})
    pair = compare(baseline(planned=3), found.model_copy(update={"cells": (throttled, *others)}))
    (overall,) = (one for one in pair.overall if one.metric is Metric.THROUGHPUT)
    assert (overall.verdict, overall.cells, overall.withheld) == (ChangeVerdict.SAME, 2, 1)
    assert gated(pair) == 0


@pytest.mark.parametrize(("rate", "hides"), [(97.0, False), (60.0, True)])
def test_one_launch_may_hide_a_loss_by_its_own_figure(rate: float, hides: bool) -> None:
    overall = compare(baseline(), new(rate)).overall[0]
    assert overall.low is not None
    assert overall.low.interval is None, "of one launch"
    unclear = replace(overall, verdict=ChangeVerdict.UNCLEAR, reason=Reason.CONDITIONS)
    assert unclear.may_hide_loss(0.02) is hides


@pytest.mark.parametrize(("rate", "code"), [(97.0, 0), (60.0, 1)])
def test_a_throttled_launch_fails_the_gate_by_what_it_may_hide(rate: float, code: int) -> None:
    pair = compare(baseline(), new(rate, flags=("throttled",)))
    assert pair.overall[0].verdict is ChangeVerdict.UNCLEAR
    assert gated(pair) == code


def test_another_workload_that_was_matched_by_name_keeps_its_rule() -> None:
    (other,) = cells(batch_sizes=[64], gpu_counts=[1])
    pair = compare(baseline(), side(result(other, [70.0])), match=(MatchKey.MODEL,))
    assert throughput(pair).limit is None
