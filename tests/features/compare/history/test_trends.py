"""Runs over time: what is one series, what counts in it, and what a change says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.factories import cells
from tests.histories import nightly
from torchscale.config.choices import Metric
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.history.records import HistoryContent
from torchscale.features.compare.history.trends import Trend, metrics_of, trends
from torchscale.schema.run.result_set import ResultSet
from torchscale.schema.state import State

WOBBLE = (1.0, 1.004, 0.997, 1.002, 0.995, 1.003, 0.999)


def content(nights: Sequence[ResultSet]) -> HistoryContent:
    """As a history file numbers runs and cells."""
    known: dict[str, int] = {}
    runs, outcomes, figures, by_number = [], [], [], {}
    for number, results in enumerate(nights, 1):
        entry = history_entry(results)
        runs.append(entry.run.model_copy(update={"number": number}))
        for one in entry.cells:
            row = known.setdefault(one.cell.model_dump_json(), len(known) + 1)
            by_number[row] = one.cell
            outcomes.append(one.outcome.model_copy(update={"run": number, "cell": row}))
            figures += [
                figure.model_copy(update={"run": number, "cell": row}) for figure in one.figures
            ]
    return HistoryContent(
        runs=tuple(runs), cells=by_number, outcomes=tuple(outcomes), figures=tuple(figures)
    )


def levels(number: int, level: float) -> list[float]:
    return [level * WOBBLE[(number * 3 + launch) % len(WOBBLE)] for launch in range(3)]


def slower_from(first: int, count: int = 24, share: float = 0.9) -> list[ResultSet]:
    return [
        nightly(number, [levels(number, 100 * (share if number >= first else 1))])
        for number in range(count)
    ]


def only(nights: Sequence[ResultSet], *, accept_flags: bool = False) -> Trend:
    (trend,) = trends(content(nights), accept_flags=accept_flags)
    return trend


def test_a_slower_cell_is_a_regression_with_its_interval_and_runs() -> None:
    trend = only(slower_from(14))
    (change,) = trend.changes
    assert (change.last.run.name, change.first.run.name) == ("night-13", "night-14")
    assert change.runs == (14, 10)
    assert change.worse
    assert change.ratio.value == pytest.approx(0.9, rel=0.005)
    assert change.ratio.interval is not None
    assert change.ratio.interval[0] < 0.9 < change.ratio.interval[1]
    assert trend.regression(0.02) is change
    assert trend.regression(0.15) is None
    assert [len(segment) for segment in trend.segments] == [14, 10]


def test_a_faster_cell_is_no_regression_nor_is_one_that_recovered() -> None:
    faster = only(slower_from(12, share=1.1))
    assert len(faster.changes) == 1
    assert not faster.changes[0].worse
    assert faster.regression(0.02) is None
    nights = [
        nightly(number, [levels(number, 90 if 12 <= number < 24 else 100)]) for number in range(36)
    ]
    recovered = only(nights)
    assert [change.worse for change in recovered.changes] == [True, False]
    assert recovered.regression(0.02) is None


def test_contended_and_failed_runs_are_shown_and_do_not_count() -> None:
    nights = [
        nightly(number, [levels(number, 60)], flags=("contended",))
        if number >= 12
        else nightly(number, [levels(number, 100)])
        for number in range(24)
    ]
    nights[3] = nightly(3, [levels(3, 10)], state=State.CRASHED)
    trend = only(nights)
    assert not trend.changes
    assert len(trend.points) == 24
    assert [point.left_out for point in trend.points if point.left_out] == [
        "crashed",
        *["contended"] * 12,
    ]
    assert len(only(nights, accept_flags=True).changes) == 1


def test_a_series_is_one_workload_however_it_was_measured() -> None:
    (cell,) = cells(gpu_counts=[1])
    other_seed = cell.model_copy(update={"seed": 7})
    larger = cell.model_copy(update={"batch_size": 64})
    nights = [
        nightly(number, [levels(number, 100)], measured=[cell if number % 2 else other_seed])
        for number in range(4)
    ]
    assert [len(trend.points) for trend in trends(content(nights))] == [4]
    nights.append(nightly(4, [levels(4, 100)], measured=[larger]))
    assert [len(trend.points) for trend in trends(content(nights))] == [4, 1]


def test_another_device_is_another_series_and_another_host_is_not() -> None:
    nights = [
        nightly(number, [levels(number, 100)], hostname=f"node-{number}") for number in range(3)
    ]
    elsewhere = nightly(3, [levels(3, 300)])
    moved = tuple(
        cell.model_copy(update={"device": "Another Processor"}) for cell in elsewhere.cells
    )
    nights.append(elsewhere.model_copy(update={"cells": moved}))
    assert [(trend.device, len(trend.points)) for trend in trends(content(nights))] == [
        ("Test Processor", 3),
        ("Another Processor", 1),
    ]


def test_what_is_followed() -> None:
    assert Metric.THROUGHPUT in metrics_of(())
    assert metrics_of([Metric.ENERGY]) == (Metric.ENERGY,)
    assert trends(content(slower_from(2, 4)), [Metric.ENERGY]) == []
