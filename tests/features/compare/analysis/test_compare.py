from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.factories import cells, environment, experiment
from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange, Reason
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.judge import LEVEL, nearest_p
from torchscale.features.compare.analysis.pair import CellOutcome, Pair
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State

STEADY = (100.0, 100.1, 99.9)


def result(
    cell: TrainingCell,
    rates: Sequence[float] = STEADY,
    state: State = State.OK,
    flags: Sequence[str] = (),
    started_at: Sequence[str] = (),
    **changes: Any,
) -> ResultCell:
    """A cell whose launches had these throughputs; its steps and memory follow. ``flags`` are those
    of each launch."""
    launches = tuple(
        LaunchFigures(
            started_at=started_at[number] if started_at else "",
            values={
                MetricKey(metric=Metric.THROUGHPUT): rate,
                MetricKey(metric=Metric.STEP_P95): 10 / rate,
                MetricKey(metric=Metric.MEMORY): 1000.0,
            },
            flags=tuple(flags),
        )
        for number, rate in enumerate(rates)
    )
    measured = state in (State.OK, State.PARTIAL)
    content = {
        "device": "NVIDIA H100",
        "torch": "2.13.0",
        "launches": launches if measured else (),
        "flags": flags,
    }
    return ResultCell(cell=cell, state=state, **{**content, **changes})


def side(*found: ResultCell, name: str = "side", **changes: Any) -> ResultSet:
    defaults: dict[str, Any] = {
        "environment": environment(8),
        "config": experiment(),
        "tool_version": "0.1.0",
    }
    return ResultSet(name=name, cells=found, **{**defaults, **changes})


def throughput(pair: Pair, at: int = 0) -> MetricChange:
    return next(change for change in pair.cells[at].changes if change.metric is Metric.THROUGHPUT)


def scaled(rates: Sequence[float], by: float) -> list[float]:
    return [rate * by for rate in rates]


def test_a_clear_change_beyond_the_threshold_is_told_in_its_direction() -> None:
    (cell, *_) = cells()
    slower = compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.95))))
    faster = compare(side(result(cell)), side(result(cell, scaled(STEADY, 1.05))))
    assert throughput(slower).verdict is ChangeVerdict.WORSE
    assert throughput(slower).ratio.value == pytest.approx(0.95)
    assert throughput(faster).verdict is ChangeVerdict.BETTER
    longer = next(change for change in slower.cells[0].changes if change.metric is Metric.STEP_P95)
    assert longer.ratio.value == pytest.approx(1 / 0.95)
    assert longer.verdict is ChangeVerdict.WORSE, "a longer step is worse"
    assert slower.regressions(()) == [cell.id]
    assert faster.regressions(()) == []


def test_a_real_but_small_change_is_none() -> None:
    (cell, *_) = cells()
    pair = compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.99))))
    assert (throughput(pair).adjusted_p or 1.0) < 0.05
    assert throughput(pair).verdict is ChangeVerdict.SAME
    assert compare(
        side(result(cell)), side(result(cell, scaled(STEADY, 0.99))), threshold=0.005
    ).regressions(()) == [cell.id]


def test_noise_is_unclear_and_not_the_same() -> None:
    (cell, *_) = cells()
    noisy = (90.0, 100.0, 110.0)
    pair = compare(side(result(cell, noisy)), side(result(cell, scaled(noisy, 0.95))))
    assert throughput(pair).verdict is ChangeVerdict.UNCLEAR
    assert throughput(pair).reason is Reason.NOISE
    assert pair.regressions(()) == []
    assert pair.unclear(()) == [cell.id]


def test_a_change_in_every_cell_is_seen_in_their_mean_where_none_shows_it_alone() -> None:
    plan = cells(batch_sizes=list(range(1, 13)), gpu_counts=[1])
    noisy = [scaled((97.0, 100.0, 103.0), 1 + 0.001 * number) for number in range(12)]
    before = side(*(result(cell, rates) for cell, rates in zip(plan, noisy, strict=True)))
    after = side(
        *(result(cell, scaled(rates, 0.96)) for cell, rates in zip(plan, noisy, strict=True))
    )
    pair = compare(before, after)
    assert {throughput(pair, at).verdict for at in range(12)} == {ChangeVerdict.UNCLEAR}
    (overall,) = [one for one in pair.overall if one.metric is Metric.THROUGHPUT]
    assert overall.verdict is ChangeVerdict.WORSE
    assert pair.regressions(()) == []
    assert pair.overall_regressions(()) == [Metric.THROUGHPUT]
    assert pair.overall_regressions((Metric.MEMORY,)) == []
    assert compare(before, before).overall_regressions(()) == []


def test_two_launches_decide_nothing_whatever_they_say() -> None:
    (cell, *_) = cells()
    pair = compare(side(result(cell)), side(result(cell, (50.0, 50.0))))
    assert (throughput(pair).verdict, throughput(pair).reason) == (
        ChangeVerdict.UNCLEAR,
        Reason.FEW_LAUNCHES,
    )
    assert throughput(pair).adjusted_p is None
    assert (pair.overall[0].verdict, pair.overall[0].reason) == (
        ChangeVerdict.UNCLEAR,
        Reason.FEW_LAUNCHES,
    )
    assert pair.regressions(()) == []
    assert pair.unclear(()) == [cell.id]


def test_many_cells_are_corrected_for() -> None:
    """p = 0.03 alone is a change, and among twenty of its kind it is what chance gives."""
    plan = cells(batch_sizes=list(range(1, 21)), gpu_counts=[1])
    before, after = (100.0, 102.0, 98.0), (104.5, 106.5, 103.5)
    alone = compare(side(result(plan[0], before)), side(result(plan[0], after)))
    assert throughput(alone).verdict is ChangeVerdict.BETTER
    others = [result(cell, before) for cell in plan[1:]]
    among = compare(side(result(plan[0], before), *others), side(result(plan[0], after), *others))
    assert throughput(among).ratio == throughput(alone).ratio
    assert throughput(among).verdict is ChangeVerdict.UNCLEAR


def test_a_cell_that_now_fails_is_a_regression_and_one_that_is_missing_is_unclear() -> None:
    first, second = cells()
    lost = compare(
        side(result(first), result(second)), side(result(first), result(second, state=State.OOM))
    )
    assert [cell.outcome for cell in lost.cells] == [CellOutcome.COMPARED, CellOutcome.LOST]
    assert lost.regressions(()) == [second.id]
    gone = compare(side(result(first), result(second)), side(result(first)))
    assert gone.cells[1].outcome is CellOutcome.UNMATCHED
    assert gone.regressions(()) == []
    assert gone.unclear(()) == [second.id]
    skipped = compare(side(result(first)), side(result(first, state=State.SKIPPED)))
    assert skipped.cells[0].outcome is CellOutcome.UNMEASURED
    assert skipped.unclear(()) == [first.id]
    back = compare(side(result(first, state=State.OOM)), side(result(first)))
    assert back.cells[0].outcome is CellOutcome.GAINED


def test_the_score_is_speed_times_the_share_that_succeeded() -> None:
    first, second = cells()
    faster = side(result(first, scaled(STEADY, 1.2)), result(second, state=State.CRASHED))
    pair = compare(side(result(first), result(second)), faster)
    assert pair.score is not None
    assert pair.score.ratio == pytest.approx(1.2)
    assert (pair.score.measured, pair.score.of) == (1, 2)
    assert pair.score.value == pytest.approx(60.0)


def test_overall_is_the_geometric_mean_and_counts_flagged_cells() -> None:
    first, second = cells()
    other = side(
        result(first, scaled(STEADY, 2.0), flags=("noisy",)), result(second, scaled(STEADY, 0.5))
    )
    overall = compare(side(result(first), result(second)), other).overall[0]
    assert overall.ratio.value == pytest.approx(1.0)
    assert (overall.cells, overall.flagged) == (2, 1)


def test_a_price_makes_samples_per_dollar() -> None:
    _, cell = cells()
    pair = compare(side(result(cell)), side(result(cell, scaled(STEADY, 1.5))), prices=(2.0, 4.0))
    change = next(change for change in pair.cells[0].changes if change.metric is Metric.COST)
    assert change.before == pytest.approx(100 * 3600 / (2 * cell.world_size), rel=1e-3)
    assert change.ratio.value == pytest.approx(0.75)
    assert change.verdict is ChangeVerdict.WORSE
    assert pair.regressions(()) == [], "speed decides unless cost is asked for"
    assert pair.regressions((Metric.COST,)) == [cell.id]


def test_cells_match_by_workload_however_long_they_were_measured() -> None:
    (quick, *_), (full, *_) = cells(benchmark={"preset": "quick"}), cells()
    assert quick.id != full.id
    pair = compare(side(result(full)), side(result(quick)))
    assert [cell.outcome for cell in pair.cells] == [CellOutcome.COMPARED]


def test_precision_is_bridged_only_when_asked() -> None:
    (full, *_), (half, *_) = cells(), cells(training={"precision": "bf16"})
    pair = compare(side(result(full)), side(result(half)))
    assert [cell.outcome for cell in pair.cells] == [CellOutcome.UNMATCHED] * 2
    assert "differ in precision alone" in pair.notes[0]
    forced = compare(side(result(full)), side(result(half)), ignore_precision=True)
    assert [cell.outcome for cell in forced.cells] == [CellOutcome.COMPARED]


def test_a_workload_that_stands_twice_on_a_side_is_not_guessed() -> None:
    (quick, *_), (full, *_) = cells(benchmark={"preset": "quick"}), cells()
    (other, *_) = cells(benchmark={"max_steps": 500})
    pair = compare(side(result(full)), side(result(quick), result(other)))
    assert [cell.outcome for cell in pair.cells] == [CellOutcome.UNMATCHED] * 3


BUSY = ("contended",)


def test_a_side_that_was_contended_alone_decides_nothing_unless_that_is_accepted() -> None:
    """The reference quiet, the other side contended and 40 % slower."""
    cell, _ = cells()
    sides = side(result(cell)), side(result(cell, scaled(STEADY, 0.6), flags=BUSY))
    pair = compare(*sides)
    assert (throughput(pair).verdict, throughput(pair).conditions) == (ChangeVerdict.UNCLEAR, BUSY)
    assert throughput(pair).adjusted_p is None, (
        "a p-value beside a verdict that does not rest on it"
    )
    (overall,) = [one for one in pair.overall if one.metric is Metric.THROUGHPUT]
    assert (overall.verdict, overall.conditions) == (ChangeVerdict.UNCLEAR, BUSY)
    assert pair.regressions(()) == pair.overall_regressions(()) == []
    assert pair.may_hide_loss(())
    assert pair.score is not None
    assert not pair.score.certain
    memory = next(change for change in pair.cells[0].changes if change.metric is Metric.MEMORY)
    assert memory.verdict is ChangeVerdict.SAME, "other processes do not change what a cell needs"
    accepted = compare(*sides, accept_flags=True)
    assert accepted.regressions(()) == [cell.id]
    both = compare(
        side(result(cell, flags=BUSY)), side(result(cell, scaled(STEADY, 0.6), flags=BUSY))
    )
    assert both.regressions(()) == [cell.id], "under equal conditions"


def test_cells_under_unequal_conditions_do_not_count_in_the_mean_or_in_the_correction() -> None:
    first, second = cells()
    after = side(
        result(first, scaled(STEADY, 1.05)), result(second, scaled(STEADY, 0.5), flags=BUSY)
    )
    pair = compare(side(result(first), result(second)), after)
    alone = compare(side(result(first)), side(result(first, scaled(STEADY, 1.05))))
    (overall,) = [one for one in pair.overall if one.metric is Metric.THROUGHPUT]
    assert (overall.cells, overall.withheld, overall.verdict) == (1, 1, ChangeVerdict.BETTER)
    assert overall.ratio == alone.overall[0].ratio
    assert throughput(pair).adjusted_p == throughput(alone).adjusted_p
    assert pair.score is not None
    assert pair.score.certain
    assert pair.score.value == pytest.approx(105)


def test_of_single_launches_those_under_unequal_conditions_do_not_count_either() -> None:
    first, second = cells()
    one = STEADY[:1]
    before = side(result(first, one), result(second, one))
    after = side(result(first, (105.0,)), result(second, (50.0,), flags=BUSY))
    (overall,) = [one for one in compare(before, after).overall if one.metric is Metric.THROUGHPUT]
    assert (overall.cells, overall.withheld) == (1, 1)
    assert overall.ratio.value == pytest.approx(1.05)


@pytest.mark.parametrize("flag", ["drifting", "noisy", "not_steady", "oversubscribed"])
def test_other_flags_ride_along_and_change_nothing(flag: str) -> None:
    cell, _ = cells()
    pair = compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.9), flags=(flag,))))
    plain = compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.9))))
    assert throughput(pair) == throughput(plain)
    assert pair.cells[0].flags == (flag,)


MONDAY, TUESDAY = "2026-01-05T08:00:00+00:00", "2026-01-06T08:00:00+00:00"


def two_days(cell: TrainingCell, rates: Sequence[float], name: str = "side") -> ResultSet:
    """Six launches, three on each day."""
    later = Session(started_at=TUESDAY, tool_version="0.1.0", environment=environment(8))
    launches = result(cell, rates, started_at=[MONDAY] * 3 + [TUESDAY] * 3)
    return side(launches, name=name, created_at=MONDAY, later=(later,))


def test_noise_between_the_sessions_of_one_side_counts_for_both() -> None:
    """Days that differ by 10 %: a single session that is 8 % away from their mean is nothing
    special."""
    cell, _ = cells()
    days = two_days(cell, (100.0, 100.2, 99.8, 110.0, 110.2, 109.8))
    once = side(result(cell, scaled(STEADY, 1.13), started_at=[MONDAY] * 3), created_at=MONDAY)
    change = throughput(compare(days, once))
    assert change.sessions == (2, 1)
    assert change.session_spread == pytest.approx(0.067, abs=0.002)
    assert change.verdict is ChangeVerdict.UNCLEAR
    same_day = side(result(cell, (100.0, 100.2, 99.8, 110.0, 110.2, 109.8)))
    assert throughput(compare(same_day, once)).session_spread is None


def test_days_that_agree_leave_the_verdict_as_it_is() -> None:
    cell, _ = cells()
    days = two_days(cell, (100.0, 100.2, 99.8, 100.1, 100.0, 99.9))
    change = throughput(compare(days, side(result(cell, scaled(STEADY, 0.9)))))
    assert change.session_spread == 0.0
    assert change.covers_sessions
    assert change.verdict is ChangeVerdict.WORSE


def test_a_partial_cell_is_compared_by_the_launches_that_it_has() -> None:
    cell, _ = cells()
    pair = compare(side(result(cell)), side(result(cell, (90.0, 90.1, 89.9), state=State.PARTIAL)))
    assert pair.regressions(()) == [cell.id]
    assert pair.score is not None
    assert (pair.score.measured, pair.score.of) == (0, 1)


def test_a_figure_that_only_the_reference_has_is_missing() -> None:
    cell, _ = cells()
    joules = MetricKey(metric=Metric.ENERGY)
    launches = tuple(
        LaunchFigures(values={**launch.values, joules: 5.0}) for launch in result(cell).launches
    )
    with_energy = side(result(cell).model_copy(update={"launches": launches}))
    pair = compare(with_energy, side(result(cell)))
    assert pair.cells[0].absent == (joules,)
    assert pair.missing(()) == []
    assert [one.cell.cell.id for one in pair.missing((Metric.ENERGY,))] == [cell.id]


@pytest.mark.parametrize("equal", [1.0, 0.97, 1.03])
def test_p_and_verdict_agree(equal: float) -> None:
    """A verdict of a change beyond the threshold needs p below the level, and the other way
    round."""
    cell, _ = cells()
    for spread in (0.5, 1.0, 1.5, 2.0, 3.0):
        rates = (100.0 - spread, 100.0, 100.0 + spread)
        change = throughput(
            compare(side(result(cell, rates)), side(result(cell, scaled(rates, equal))))
        )
        assert change.adjusted_p is not None
        assert (
            change.verdict.decided is (change.adjusted_p < LEVEL)
            or change.verdict is ChangeVerdict.SAME
        )


def test_the_efficiency_score_is_the_ratio_of_scaling_efficiencies() -> None:
    """The other side is 10 % faster on one device and 1 % slower on two: its efficiency there is
    0.9 of the other's."""
    one, two = cells()
    other = side(result(one, scaled(STEADY, 1.1)), result(two, scaled(STEADY, 0.99)))
    score = compare(side(result(one), result(two)), other).efficiency
    assert score is not None
    assert score.value == pytest.approx(90)
    assert score.cells == 1
    assert score.ratio.interval is not None
    assert score.ratio.interval[0] < 0.9 < score.ratio.interval[1]
    assert compare(side(result(one)), other).efficiency is None
    busy = side(result(one, flags=BUSY), result(two))
    assert compare(side(result(one), result(two)), busy).efficiency is None


def test_series_count_once_each_in_the_efficiency_score() -> None:
    plan = cells(batch_sizes=[8, 16], gpu_counts=[1, 2, 4])
    rates = {1: 1.0, 2: 0.9, 4: 0.8}
    after = [
        result(cell, scaled(STEADY, rates[cell.world_size] if cell.batch_size == 8 else 1.0))
        for cell in plan
    ]
    score = compare(side(*map(result, plan)), side(*after)).efficiency
    assert score is not None
    assert score.value == pytest.approx(100 * math.sqrt(math.sqrt(0.9 * 0.8)))
    assert score.cells == 4


def test_cells_with_too_few_launches_do_not_count_where_others_have_enough() -> None:
    first, second = cells()
    few = STEADY[:2]
    pair = compare(
        side(result(first), result(second, few)),
        side(result(first), result(second, scaled(few, 0.5))),
    )
    assert pair.overall[0].ratio.value == pytest.approx(1.0)
    assert pair.overall[0].cells == 1
    alone = compare(side(result(second, few)), side(result(second, scaled(few, 0.5))))
    assert alone.overall[0].ratio.value == pytest.approx(0.5)


def test_a_score_of_speed_is_as_certain_as_the_speeds() -> None:
    """That something else is unclear, as the slowest steps often are, does not matter."""
    cell = cells()[0]

    def with_tail(tail: Sequence[float]) -> ResultSet:
        launches = tuple(
            LaunchFigures(
                values={
                    MetricKey(metric=Metric.THROUGHPUT): rate,
                    MetricKey(metric=Metric.STEP_P95): p95,
                }
            )
            for rate, p95 in zip(STEADY, tail, strict=True)
        )
        return side(result(cell, launches=launches))

    pair = compare(with_tail([0.1, 0.5, 0.9]), with_tail([0.2, 0.9, 0.3]))
    assert [one.verdict for one in pair.overall] == [ChangeVerdict.SAME, ChangeVerdict.UNCLEAR]
    assert pair.score is not None
    assert pair.score.certain


def lacking(found: ResultCell, metric: Metric) -> ResultCell:
    """The cell with a last launch that lacks a metric."""
    *others, last = found.launches
    values = {key: value for key, value in last.values.items() if key.metric is not metric}
    launches = (*others, last.model_copy(update={"values": values}))
    return found.model_copy(update={"launches": launches})


def test_a_figure_that_a_launch_lacks_is_one_that_its_side_lacks() -> None:
    cell, _ = cells()
    whole, partial = side(result(cell)), side(lacking(result(cell), Metric.MEMORY))
    rest = [Metric.THROUGHPUT, Metric.STEP_P95]
    for pair in (compare(partial, whole), compare(whole, partial)):
        assert [change.metric for change in pair.cells[0].changes] == rest
    assert compare(whole, partial).cells[0].absent == (MetricKey(metric=Metric.MEMORY),)
    assert compare(partial, whole).cells[0].absent == ()


@pytest.mark.parametrize("price", [None, 0.0])
def test_without_a_price_on_both_sides_there_is_no_cost(price: float | None) -> None:
    cell, _ = cells()
    for prices in ((price, 2.0), (2.0, price)):
        pair = compare(side(result(cell)), side(result(cell)), prices=prices)
        assert Metric.COST not in {change.metric for change in pair.cells[0].changes}


def test_a_cell_without_a_throughput_has_no_cost() -> None:
    cell, _ = cells()
    found = side(lacking(result(cell), Metric.THROUGHPUT))
    pair = compare(found, found, prices=(2.0, 2.0))
    assert Metric.COST not in {change.metric for change in pair.cells[0].changes}
    assert pair.score is None


@pytest.mark.parametrize(
    ("rate", "threshold", "verdict"),
    [
        (1.0, 0.0, ChangeVerdict.SAME),
        (0.5, 0.5, ChangeVerdict.SAME),
        (2.0, 1.0, ChangeVerdict.SAME),
        (0.5, 0.49, ChangeVerdict.WORSE),
        (2.0, 0.99, ChangeVerdict.BETTER),
    ],
)
def test_a_change_of_the_threshold_itself_is_none(
    rate: float, threshold: float, verdict: ChangeVerdict
) -> None:
    """Launches without any noise."""
    cell, _ = cells()
    pair = compare(
        side(result(cell, (1.0, 1.0, 1.0))), side(result(cell, (rate,) * 3)), threshold=threshold
    )
    assert throughput(pair).verdict is verdict


def test_the_nearest_end_decides_and_ends_around_no_change_or_without_noise_do_not() -> None:
    low, high = LogRatio(-0.2, 0.01, 4), LogRatio(0.1, 0.01, 4)
    assert low.p is not None
    assert high.p is not None
    assert nearest_p(LogRatio(-0.3, 0.01, 4), low) == low.p
    assert nearest_p(high, LogRatio(0.3, 0.01, 4)) == high.p
    assert nearest_p(low, None) == nearest_p(None, high) == 1.0, "nothing bounds the other end"
    assert nearest_p(low, high) == nearest_p(None, None) == 1.0
    assert nearest_p(LogRatio(0.0, 0.01, 4), LogRatio(0.0, 0.01, 4)) == 1.0
    for alone in (LogRatio(-0.2), LogRatio(0.2)):
        assert nearest_p(alone, alone) == 1.0


def test_against_a_median_the_level_before_is_the_median_of_sessions() -> None:
    """Two sessions at 100 and one at 200, whose mean would be higher."""
    cell, _ = cells()
    days = [f"2026-01-0{day}T08:00:00+00:00" for day in (5, 6, 7)]
    later = tuple(
        Session(started_at=day, tool_version="0.1.0", environment=environment(8))
        for day in days[1:]
    )
    rates = [*STEADY, *STEADY, *scaled(STEADY, 2.0)]
    launches = result(cell, rates, started_at=[day for day in days for _ in range(3)])
    reference = side(launches, created_at=days[0], later=later)
    change = throughput(compare(reference, side(result(cell)), median=True))
    assert change.before == pytest.approx(100, rel=1e-3)
    assert change.after == pytest.approx(100, rel=1e-3)
    assert change.sessions == (3, 1)
    assert throughput(compare(reference, side(result(cell)))).before > 120


def test_a_score_counts_unequal_conditions_where_there_are_no_others() -> None:
    first, second = cells()
    after = [result(cell, scaled(STEADY, 0.6), flags=BUSY) for cell in (first, second)]
    score = compare(side(result(first), result(second)), side(*after)).score
    assert score is not None
    assert score.ratio == pytest.approx(0.6)
    assert (score.measured, score.of, score.certain) == (2, 2, False)


def test_what_the_reference_did_not_measure_counts_in_no_score() -> None:
    first, second = cells()
    skipped = result(second, state=State.SKIPPED)
    pair = compare(side(result(first), skipped), side(result(first), result(second)))
    assert pair.cells[1].outcome is CellOutcome.UNMEASURED
    assert pair.score is not None
    assert (pair.score.measured, pair.score.of) == (1, 1)
    none = compare(side(skipped), side(result(second)))
    assert (none.score, none.efficiency, none.overall) == (None, None, ())


@pytest.mark.parametrize("by", [0.99, 1.01])
def test_an_interval_that_reaches_beyond_the_threshold_at_one_end_is_unclear(by: float) -> None:
    cell, _ = cells()
    rates = (99.5, 100.0, 100.5)
    change = throughput(compare(side(result(cell, rates)), side(result(cell, scaled(rates, by)))))
    assert change.ratio.interval is not None
    within = [abs(end - 1) <= 0.02 for end in change.ratio.interval]
    assert within == [by > 1, by < 1]
    assert change.verdict is ChangeVerdict.UNCLEAR


def test_a_cell_without_launches_is_unmeasured_whatever_its_state() -> None:
    """As in a baseline of which the launches are missing."""
    cell, _ = cells()
    none, some = side(result(cell, ())), side(result(cell))
    for pair in (compare(some, none), compare(none, some), compare(none, none)):
        assert [one.outcome for one in pair.cells] == [CellOutcome.UNMEASURED]
        assert pair.overall == ()


def test_a_run_against_itself_is_the_same_run_however_noisy() -> None:
    noisy = result(cells()[0], (40.0, 100.0, 250.0))
    started = noisy.model_copy(
        update={
            "launches": tuple(
                launch.model_copy(update={"started_at": f"2026-02-01T00:00:0{place}+00:00"})
                for place, launch in enumerate(noisy.launches)
            )
        }
    )
    pair = compare(side(started), side(started))
    assert pair.is_same_run
    assert {change.verdict for cell in pair.cells for change in cell.changes} == {
        ChangeVerdict.SAME
    }
    assert not compare(side(noisy), side(noisy)).is_same_run, "nobody knows when these began"
