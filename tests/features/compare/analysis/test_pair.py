"""What a gate may not overlook."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tests.factories import cells
from tests.features.compare.analysis.test_compare import STEADY, result, scaled, side, throughput
from torchscale.analysis.stats.ratios import log_ratio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.pair import EfficiencyScore, Pair
from torchscale.schema.cells.memory import MemoryCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell
from torchscale.schema.state import State

FIRST, SECOND = cells()
NOISY = (90.0, 100.0, 110.0)
"""Intervals of some 20 %."""
WILD = (50.0, 100.0, 200.0)


def against(
    *others: ResultCell, reference: Sequence[ResultCell] = (result(FIRST), result(SECOND))
) -> Pair:
    return compare(side(*reference), side(*others))


@pytest.mark.parametrize(
    ("after", "missing"),
    [
        (result(SECOND), False),
        (result(SECOND, (*STEADY, *STEADY)), False),
        (result(SECOND, (100.0, 100.1), state=State.PARTIAL), True),
        (result(SECOND, STEADY[:2]), True),
        (result(SECOND, state=State.WAITING), True),
        (result(SECOND, state=State.SKIPPED), True),
        (result(SECOND, state=State.INTERRUPTED), True),
        (None, True),
    ],
)
def test_what_the_other_side_measured_less_of(after: ResultCell | None, missing: bool) -> None:
    pair = against(result(FIRST), *([] if after is None else [after]))
    assert [cell.cell.cell.id for cell in pair.missing(())] == ([SECOND.id] if missing else [])
    assert pair.regressions(()) == []


@pytest.mark.parametrize("state", [state for state in State if state.has_failed])
def test_a_cell_that_failed_on_the_other_side_is_lost_and_not_missing(state: State) -> None:
    """A rank that exited early (``incomplete``) is a failure too: it is not what ``--accept
    missing`` lets pass."""
    pair = against(result(FIRST), result(SECOND, state=state))
    assert pair.missing(()) == []
    assert pair.regressions(()) == [SECOND.id]


def test_a_cell_that_a_side_lacks_has_neither_id_nor_state_there() -> None:
    both, one = against(result(FIRST), reference=[result(FIRST), result(SECOND)]).cells
    assert (both.other_id, both.states) == (FIRST.id, (State.OK, State.OK))
    assert (one.other_id, one.states) == (None, (State.OK, None))


def test_an_efficiency_score_has_its_interval_in_hundredths_of_the_reference() -> None:
    score = EfficiencyScore(log_ratio((99.0, 100.0, 101.0), STEADY), 1)
    assert score.ratio.interval is not None
    low, high = score.ratio.interval
    assert score.interval == pytest.approx((100 * low, 100 * high))
    assert low < score.value / 100 < high
    assert EfficiencyScore(log_ratio((99.0,), STEADY), 1).interval is None


def test_more_cells_on_the_other_side_and_what_the_reference_lacks_are_not_missing() -> None:
    assert against(result(FIRST), result(SECOND), reference=[result(FIRST)]).missing(()) == []
    skipped = against(result(FIRST), reference=[result(FIRST), result(SECOND, state=State.SKIPPED)])
    assert skipped.missing(()) == []
    short = against(result(FIRST, STEADY[:1]), reference=[result(FIRST, STEADY[:2])])
    assert short.missing(()) == [], "neither side has the launches for a verdict"
    assert short.may_hide_loss(())


def test_a_partial_side_with_as_many_launches_as_the_reference_is_not_less() -> None:
    pair = against(result(FIRST, STEADY, state=State.PARTIAL), reference=[result(FIRST)])
    assert pair.missing(()) == []


@pytest.mark.parametrize(
    ("rates", "hidden"),
    [
        (STEADY, False),
        (scaled(STEADY, 0.9), False),
        (NOISY, False),
        (WILD, True),
        (STEADY[:2], True),
        ((1.0,), True),
    ],
)
def test_an_unclear_comparison_may_hide_a_loss(rates: Sequence[float], hidden: bool) -> None:
    pair = against(
        result(FIRST, rates), reference=[result(FIRST, rates if rates is NOISY else STEADY)]
    )
    assert pair.may_hide_loss(()) is hidden
    assert pair.may_hide_loss((Metric.STEP_P95,)) is hidden, "where less is better"


def test_the_mean_over_all_cells_tells_whether_a_loss_is_hidden() -> None:
    assert not against(
        result(FIRST, scaled(WILD, 2)), result(SECOND, scaled(STEADY, 2))
    ).may_hide_loss(())
    assert against(result(FIRST, WILD), result(SECOND)).may_hide_loss(())
    assert against(result(FIRST, WILD), result(SECOND, WILD)).may_hide_loss(())


def test_an_interval_that_excludes_a_loss_is_not_blind_however_wide() -> None:
    pair = against(
        result(FIRST, (400.0, 1000.0, 2500.0)), reference=[result(FIRST, (101.0, 100.0, 99.0))]
    )
    interval = throughput(pair).ratio.interval
    assert interval is not None
    assert interval[0] > 0.75
    assert not pair.may_hide_loss(())


def test_the_limit_follows_a_larger_threshold() -> None:
    pair = against(result(FIRST, (70.0, 100.0, 130.0)), reference=[result(FIRST)])
    (change,) = [change for _, change in pair.decided_by(())]
    interval = change.ratio.interval
    assert interval is not None
    assert math.isclose(change.ratio.value, 0.97, abs_tol=0.01)
    assert 0.4 < interval[0] < 0.75
    (overall,) = pair.overall_by(())
    (step,) = pair.overall_by((Metric.STEP_P95,))
    for one in (overall, step):
        assert one.may_hide_loss(0.02)
        assert not one.may_hide_loss(0.6)


@pytest.mark.parametrize(
    ("after", "unclear"),
    [
        (result(SECOND), [SECOND.id]),
        (result(SECOND, state=State.SKIPPED), []),
        (result(SECOND, state=State.WAITING), []),
    ],
)
def test_only_what_was_measured_somewhere_is_unclear(after: ResultCell, unclear: list[str]) -> None:
    """Of a cell that no side measured, there is nothing to say."""
    assert against(result(FIRST), after, reference=[result(FIRST)]).unclear(()) == unclear


def bytes_of(memory: float) -> ResultCell:
    """A training cell of steady throughput that needs so much."""
    figures = tuple(
        LaunchFigures(
            values={
                MetricKey(metric=Metric.THROUGHPUT): rate,
                MetricKey(metric=Metric.MEMORY): memory,
            }
        )
        for rate in STEADY
    )
    return result(FIRST, launches=figures)


def test_memory_decides_of_a_cell_that_measures_it_alone() -> None:
    """A training cell that needs more and is as fast fails no gate unless it is asked for."""
    more = against(bytes_of(2000.0), reference=[bytes_of(1000.0)])
    assert more.regressions(()) == []
    assert more.regressions((Metric.MEMORY,)) == [FIRST.id]
    cell = MemoryCell(training=FIRST)
    before, after = (bytes_of(size).model_copy(update={"cell": cell}) for size in (1000.0, 2000.0))
    alone = against(after, reference=[before])
    assert [change.metric for _, change in alone.decided_by(())] == [
        Metric.THROUGHPUT,
        Metric.MEMORY,
    ]
    assert alone.regressions(()) == [cell.id]
    timed = result(FIRST).model_copy(update={"cell": cell})
    slower = against(
        result(FIRST, scaled(STEADY, 0.5)).model_copy(update={"cell": cell}), reference=[timed]
    )
    assert Metric.STEP_P95 not in {change.metric for _, change in slower.decided_by(())}


def test_of_a_cell_that_one_side_lacks_the_other_is_told() -> None:
    """Its flags, and that it was measured less, however few launches the reference has of it."""
    flagged = result(SECOND, STEADY[:1], flags=("noisy",))
    pair = against(result(FIRST), reference=[result(FIRST), flagged])
    assert pair.cells[1].flags == ("noisy",)
    assert pair.missing(()) == [pair.cells[1]]


def test_what_equal_conditions_measured_has_no_other_ends() -> None:
    """The interval of the ratio is all that is shown."""
    pair = against(result(FIRST), reference=[result(FIRST)])
    assert throughput(pair).possible is None
    assert [one.possible for one in pair.overall] == [None] * len(pair.overall)


def test_what_a_contended_side_may_have_been_alone_has_both_ends() -> None:
    """Of the one cell and over all: as fast as measured at least, and faster by its delay and more
    at most."""

    def delayed(most: float, *flags: str) -> ResultCell:
        figures = tuple(
            LaunchFigures(
                values={MetricKey(metric=Metric.THROUGHPUT): rate}, flags=flags, delay=(0.0, most)
            )
            for rate in STEADY
        )
        return result(FIRST, launches=figures)

    pair = against(delayed(0.05, "contended"), reference=[delayed(0.0)])
    (overall,) = pair.overall
    assert overall.possible is not None
    assert overall.possible == pytest.approx(throughput(pair).possible)
    low, high = overall.possible
    assert low is not None
    assert high is not None
    assert low < 1 < 1 / 0.95 < high
