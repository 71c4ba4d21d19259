"""What a side that was disturbed can still show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tests.factories import cells, environment
from tests.features.compare.analysis.test_compare import STEADY, result, scaled, side
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.bounds import EQUAL_WORK, HEAVY_SLOWDOWN, SLOWDOWN, Basis
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange, Reason
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.text.comparison import format_undisturbed, format_verdict
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell

CELL = cells()[0]
WORK = (1.5e-4, 2.5e-4)
"""Seconds of the fixed work where nothing disturbs it."""


def launches(
    rates: Sequence[float],
    delays: Sequence[tuple[float, float] | None],
    work: tuple[float, float] | None = WORK,
    flag: str = "contended",
) -> ResultCell:
    """A cell whose launches were delayed so; ``None`` was not disturbed."""
    figures = tuple(
        LaunchFigures(
            values={
                MetricKey(metric=Metric.THROUGHPUT): rate,
                MetricKey(metric=Metric.STEP_P95): 10 / rate,
            },
            flags=() if delay is None else (flag,),
            other_processes=0.0 if delay is None else 0.5,
            delay=(0.0, 0.0) if delay is None else delay,
            fixed_work=WORK if delay is None else work,
        )
        for rate, delay in zip(rates, delays, strict=True)
    )
    return result(CELL, rates, launches=figures)


QUIET = launches(STEADY, [None] * 3)
HALF = [(0.48, 0.5)] * 3
"""Others had the core for half of the time."""


def change(
    before: ResultCell, after: ResultCell, metric: Metric = Metric.THROUGHPUT
) -> MetricChange:
    pair = compare(side(before), side(after))
    return next(one for one in pair.cells[0].changes if one.metric is metric)


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        (1.0, ChangeVerdict.UNCLEAR),
        (0.95, ChangeVerdict.UNCLEAR),
        (0.8, ChangeVerdict.WORSE),
        (0.5, ChangeVerdict.WORSE),
    ],
)
def test_a_slower_side_under_load_is_worse_where_waiting_does_not_explain_it(
    share: float, verdict: ChangeVerdict
) -> None:
    """Half of the rate is what sharing the core explains; a fifth less than that is not."""
    found = change(QUIET, launches(scaled(STEADY, share * 0.5), HALF))
    assert (found.verdict, found.conditions) == (verdict, ("contended",))
    assert found.low is not None
    assert found.high is not None
    assert found.low.value == pytest.approx(share * 0.5 / (1 - 0.48), rel=1e-3)
    assert found.high.value == pytest.approx(share * (1 + SLOWDOWN), rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [
        (100.0, ChangeVerdict.UNCLEAR),
        (85.0, ChangeVerdict.WORSE),
        (50.0, ChangeVerdict.WORSE),
        (130.0, ChangeVerdict.BETTER),
    ],
)
def test_a_reference_under_load_is_judged_by_what_it_would_have_reached(
    rate: float, verdict: ChangeVerdict
) -> None:
    """It measured 50, and alone would have measured 96 or more; a side that is as slow as the
    reference looked is slower."""
    found = change(
        launches(scaled(STEADY, 0.5), HALF), launches(scaled(STEADY, rate / 100), [None] * 3)
    )
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("share", "verdict"), [(1.0, ChangeVerdict.SAME), (0.85, ChangeVerdict.WORSE)]
)
def test_sides_that_were_delayed_alike_are_compared_as_if_by_the_same_part_of_what_they_may(
    share: float, verdict: ChangeVerdict
) -> None:
    """Each may have lost from nothing to half of its time: that one lost nothing and the other half
    is no explanation."""
    anything = [(0.0, 0.5)] * 3
    found = change(launches(STEADY, anything), launches(scaled(STEADY, share), anything))
    assert (found.verdict, found.conditions) == (verdict, ("contended",))
    assert found.possible is not None
    low, high = found.possible
    assert low is not None and high is not None
    assert low < share < high < 1.1 * low


def test_a_change_whose_size_is_unclear_says_so() -> None:
    wide = change(launches(STEADY, [(0.0, 0.6)] * 3), launches(scaled(STEADY, 0.2), [None] * 3))
    assert wide.verdict is ChangeVerdict.WORSE
    assert wide.size_is_unclear
    assert format_verdict(wide) == "worse, size unclear"
    narrow = change(QUIET, launches(scaled(STEADY, 0.4), HALF))
    assert not narrow.size_is_unclear
    assert format_undisturbed(narrow).endswith("%")
    assert format_undisturbed(change(QUIET, QUIET)) == "–"


def test_beside_processes_that_slow_the_fixed_work_the_bound_is_wider() -> None:
    slowed = launches(scaled(STEADY, 0.4), HALF, work=(1.5e-4, 4e-4))
    found = change(QUIET, slowed)
    assert found.verdict is ChangeVerdict.UNCLEAR
    assert found.high is not None
    machine = EQUAL_WORK[1]  # its own copies may have been slower by what is usual
    assert found.high.value == pytest.approx(0.8 * (1 + HEAVY_SLOWDOWN) * machine, rel=1e-3)
    assert (
        change(QUIET, launches(scaled(STEADY, 0.25), HALF, work=(1.5e-4, 4e-4))).verdict
        is ChangeVerdict.WORSE
    )


def test_fixed_work_of_another_processor_or_of_no_launch_is_not_compared() -> None:
    slow = launches(scaled(STEADY, 0.4), HALF)
    other = slow.model_copy(update={"device": "another"})
    pair = compare(side(QUIET), side(other), ignore_precision=True)
    assert pair.cells[0].changes[0].verdict is ChangeVerdict.UNCLEAR
    assert (
        change(QUIET, launches(scaled(STEADY, 0.4), HALF, work=None)).verdict
        is ChangeVerdict.UNCLEAR
    )


def test_a_rank_that_sleeps_while_others_use_its_core_lost_nothing() -> None:
    """Others took nearly the whole core, and its threads hardly waited for it."""
    found = change(QUIET, launches(scaled(STEADY, 0.5), [(0.0, 0.02), None, (0.0, 0.02)]))
    assert found.verdict is ChangeVerdict.WORSE


def test_without_any_bound_the_launches_that_were_left_alone_decide() -> None:
    """One launch of three was quiet, and agrees with the others: half of the speed."""
    found = change(QUIET, launches((50.0, 50.1, 49.9), [(0.0, 1.0), None, (0.0, 1.0)]))
    assert found.verdict is ChangeVerdict.WORSE
    assert found.bounds is not None
    assert found.bounds.basis is Basis.QUIET_LAUNCHES
    close = change(QUIET, launches((50.0, 99.9, 50.2), [(0.0, 1.0), None, (0.0, 1.0)]))
    assert close.verdict is ChangeVerdict.SAME, "the quiet launch shows no difference"


@pytest.mark.parametrize("flag", ["contended", "throttled"])
def test_a_disturbance_makes_slower_and_never_faster(flag: str) -> None:
    unknown = [(0.0, 1.0)] * 3
    faster = launches(scaled(STEADY, 1.2), unknown, flag=flag)
    slower = launches(scaled(STEADY, 0.8), unknown, flag=flag)
    assert change(QUIET, faster).verdict is ChangeVerdict.BETTER
    assert change(QUIET, slower).verdict is ChangeVerdict.UNCLEAR
    assert change(faster, QUIET).verdict is ChangeVerdict.WORSE
    assert change(slower, QUIET).verdict is ChangeVerdict.UNCLEAR
    assert change(QUIET, faster, Metric.STEP_P95).verdict is ChangeVerdict.BETTER
    assert change(slower, QUIET, Metric.STEP_P95).verdict is ChangeVerdict.UNCLEAR
    assert change(slower, QUIET).reason is Reason.CONDITIONS


@pytest.mark.parametrize(
    ("share", "work", "verdict", "conditions"),
    [
        (
            0.96,
            (1.56e-4, 2.5e-4),
            ChangeVerdict.UNCLEAR,
            ("slowed",),
        ),  # as much slower as the machine
        (0.96, (1.5e-4, 2.6e-4), ChangeVerdict.UNCLEAR, ("slowed",)),  # its memory
        (0.90, (1.56e-4, 2.5e-4), ChangeVerdict.WORSE, ("slowed",)),  # by more than that
        (
            0.96,
            (1.44e-4, 2.5e-4),
            ChangeVerdict.WORSE,
            ("slowed",),
        ),  # although the machine was faster
        (1.04, (1.44e-4, 2.5e-4), ChangeVerdict.UNCLEAR, ("slowed",)),
        (0.96, (1.51e-4, 2.52e-4), ChangeVerdict.WORSE, ()),  # as fast as before
    ],
)
def test_what_the_machine_itself_explains_is_no_change(
    share: float, work: tuple[float, float], verdict: ChangeVerdict, conditions: tuple[str, ...]
) -> None:
    """A host's clock is lower for minutes: all launches of a side alike, and the fixed work shows
    it."""
    after = launches(scaled(STEADY, share), [None] * 3)
    slowed = [one.model_copy(update={"fixed_work": work}) for one in after.launches]
    after = after.model_copy(update={"launches": tuple(slowed)})
    found = change(QUIET, after)
    assert (found.verdict, found.conditions) == (verdict, conditions)
    assert change(QUIET, after, Metric.STEP_P95).verdict is verdict
    other = after.model_copy(update={"device": "another processor"})
    assert change(QUIET, other).conditions == (), (
        "the work of another processor says nothing of a clock"
    )


def test_a_slower_machine_of_two_is_worse() -> None:
    """Of two hosts with one kind of processor, the difference of their clocks is the result."""
    slower = launches(scaled(STEADY, 0.96), [None] * 3)
    work = (WORK[0] / 0.96, WORK[1] / 0.96)
    slower = slower.model_copy(
        update={
            "launches": tuple(
                one.model_copy(update={"fixed_work": work}) for one in slower.launches
            )
        }
    )
    other_host = side(slower, environment=environment(8, hostname="another-host"))
    (found,) = (
        one
        for one in compare(side(QUIET), other_host).cells[0].changes
        if one.metric is Metric.THROUGHPUT
    )
    assert (found.verdict, found.conditions) == (ChangeVerdict.WORSE, ())
    assert change(QUIET, slower).verdict is ChangeVerdict.UNCLEAR


def test_one_launch_whose_fixed_work_took_long_makes_no_side_unusual() -> None:
    usual, once = [(1.59e-4, 2.5e-4)] * 3, [(1.7e-4, 2.5e-4), (1.5e-4, 2.5e-4), (1.5e-4, 2.5e-4)]
    highs = []
    for works in (usual, once, [(1.7e-4, 2.5e-4)] * 3):
        slow = launches(scaled(STEADY, 0.4), HALF)
        figures = zip(slow.launches, works, strict=True)
        slow = slow.model_copy(
            update={
                "launches": tuple(one.model_copy(update={"fixed_work": w}) for one, w in figures)
            }
        )
        high = change(QUIET, slow).high
        assert high is not None
        highs.append(high.value)
    assert highs[1] < 1.1 * highs[0]
    assert highs[2] > 1.3 * highs[0]


def test_a_change_within_bounds_that_lie_within_the_threshold_is_none() -> None:
    assert change(QUIET, launches(STEADY, [(0.0, 0.001)] * 3)).verdict is ChangeVerdict.SAME
    assert change(QUIET, launches(STEADY, [(0.0, 0.05)] * 3)).verdict is ChangeVerdict.UNCLEAR


@pytest.mark.parametrize("delays", [[(0.06, 0.06)] * 3, [(0.0, 0.0), (0.0, 0.0), (0.17, 0.18)]])
def test_a_delay_is_no_change(delays: list[tuple[float, float]]) -> None:
    """Each launch is slower by just what it waited: all of them by little, or one of three by
    much."""
    rates = [rate * (1 - delay) for rate, (delay, _) in zip(STEADY, delays, strict=True)]
    slow = launches(rates, delays)
    flags = [("contended",) if delay > 0.02 else () for delay, _ in delays]
    figures = zip(slow.launches, flags, strict=True)
    slow = slow.model_copy(
        update={"launches": tuple(one.model_copy(update={"flags": of}) for one, of in figures)}
    )
    for before, after in ((QUIET, slow), (slow, QUIET)):
        found = change(before, after)
        assert found.verdict in (ChangeVerdict.UNCLEAR, ChangeVerdict.SAME)
        assert found.conditions == ("contended",)


def test_bounded_cells_count_in_the_mean_and_the_correction() -> None:
    first, second = cells()
    before = side(QUIET, result(second))
    slow = launches(scaled(STEADY, 0.3), HALF)
    pair = compare(before, side(slow, result(second, scaled(STEADY, 0.7))))
    (overall,) = [one for one in pair.overall if one.metric is Metric.THROUGHPUT]
    assert (overall.cells, overall.withheld, overall.verdict) == (2, 0, ChangeVerdict.WORSE)
    assert overall.high is not None
    assert overall.high.value == pytest.approx((0.6 * (1 + SLOWDOWN) * 0.7) ** 0.5, rel=1e-3)
    assert pair.regressions(()) == [first.id, second.id]


def test_an_end_that_is_unknown_leaves_the_other_one() -> None:
    """Where others had the core for nearly all of a launch, nothing says how fast it would have
    been at most; at least as fast as measured it was."""
    found = change(QUIET, launches(scaled(STEADY, 0.9), [(0.3, 0.99)] * 3))
    assert found.low is not None
    assert found.low.value == pytest.approx(0.9 / 0.7, rel=1e-3)
    assert (found.high, found.verdict) == (None, ChangeVerdict.BETTER)
    assert found.low.interval is not None
    assert found.possible == (found.low.interval[0], None)


def test_products_that_took_half_as_long_again_are_not_usual_work() -> None:
    """Then others took more than turns on the core, and the computation itself may have been much
    slower."""
    slowed = change(QUIET, launches(scaled(STEADY, 0.4), HALF, work=(2.25e-4, 2.5e-4)))
    assert slowed.high is not None
    # Of the half as long again, 6 % are the scatter of the work, and may be the machine's own.
    assert slowed.high.value == pytest.approx(0.8 * (1 + HEAVY_SLOWDOWN) * 1.06, rel=1e-3)


def test_of_two_disturbed_sides_nothing_says_which_one_suffered_more() -> None:
    """One launch of three here and all three there: neither ratio is a bound."""
    delay = (0.99, 0.99)
    before = launches(STEADY, [None, None, delay], flag="throttled")
    after = launches(scaled(STEADY, 2.0), [delay] * 3, flag="throttled")
    found = change(before, after)
    assert (found.low, found.high, found.verdict) == (None, None, ChangeVerdict.UNCLEAR)


def test_quiet_launches_without_a_spread_are_no_bound() -> None:
    """Two there and one here have one degree of freedom between them, one and one have none: nothing
    says how much such launches differ by themselves."""
    gone = (0.0, 1.0)
    two_and_one = change(
        launches((100.0, 101.0, 50.0), [None, None, gone]),
        launches((50.0, 25.0, 25.0), [None, gone, gone]),
    )
    one_and_one = change(
        launches((100.0, 50.0, 50.0), [None, gone, gone]),
        launches((50.0, 25.0, 25.0), [None, gone, gone]),
    )
    for found in (two_and_one, one_and_one):
        assert found.bounds is None or found.bounds.basis is not Basis.QUIET_LAUNCHES


def test_the_interval_of_quiet_launches_is_that_of_an_independent_tool() -> None:
    from scipy import stats

    found = change(QUIET, launches((50.0, 50.1, 49.9), [(0.0, 1.0), None, (0.0, 1.0)]))
    told = stats.ttest_ind([math.log(50.1)], [math.log(rate) for rate in STEADY])
    low, high = told.confidence_interval(0.95)
    assert found.bounds is not None
    assert found.bounds.low is not None
    assert found.bounds.low.interval == pytest.approx((math.exp(low), math.exp(high)))


def test_a_launch_that_hardly_ran_says_nothing_of_its_rate_alone() -> None:
    """Others had the core for 96 % of it: a small error of that share would be a large one of the
    rest."""
    found = change(QUIET, launches(scaled(STEADY, 0.03), [(0.96, 0.97)] * 3))
    assert found.bounds is None or found.bounds.basis is not Basis.DELAY


def test_fixed_work_that_took_as_long_as_it_may_is_usual() -> None:
    """The limit is the largest that was measured beside processes that slow nothing else."""
    usual, slow = (
        tuple(most * seconds for most, seconds in zip(limits, WORK, strict=True))
        for limits in (EQUAL_WORK, (EQUAL_WORK[0], EQUAL_WORK[1] * 1.001))
    )
    ends = []
    for work in (usual, slow):
        found = change(QUIET, launches(scaled(STEADY, 0.4), HALF, work=(work[0], work[1])))
        assert found.high is not None
        ends.append(found.high.value)
    assert ends[1] > 1.3 * ends[0]
