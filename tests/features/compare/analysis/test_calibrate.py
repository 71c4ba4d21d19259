from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.factories import cells, environment
from tests.features.compare.analysis.test_compare import result, side
from torchscale.config.choices import Metric
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.calibrate import MIN_RUNS, calibrate
from torchscale.features.compare.rate import AlarmRate
from torchscale.schema.run.calibration import MOST
from torchscale.schema.run.result_set import ResultSet
from torchscale.schema.state import State

ONE_IN_20 = AlarmRate("1/20", 10.0, 0.05)
A_YEAR = AlarmRate("1/year", 10.0, 1 / 3650)


def a_a_runs(
    count: int,
    spread: float = 0.02,
    launches: int = 3,
    planned: int = 1,
    seed: int = 1,
    **changes: Any,
) -> list[ResultSet]:
    """Runs whose levels scatter, with one launch 0.1 % off another."""
    generator = random.Random(seed)
    of = cells(batch_sizes=[8 * (place + 1) for place in range(planned)], gpu_counts=[1])
    runs = []
    for number in range(count):
        level = 100 * (1 + generator.gauss(0, spread))
        rates = [level * (1 + 0.001 * place) for place in range(launches)]
        runs.append(
            side(
                *(result(cell, rates, **changes) for cell in of),
                name=f"run-{number}",
                created_at=f"2026-01-{number + 1:02}T00:00:00+00:00",
                environment=environment(8, hostname="node-1"),
            )
        )
    return runs


def with_levels(levels: Sequence[float]) -> list[ResultSet]:
    (cell, *_) = cells()
    return [side(result(cell, [level] * 2)) for level in levels]


def test_one_alarm_in_so_many_runs_as_there_are_is_the_largest_loss_that_was_seen() -> None:
    levels = [100.0 + place for place in range(19)]
    of_19 = calibrate(with_levels(levels), (), AlarmRate("1/20", 10.0, 0.05)).cells[0]
    of_9 = calibrate(with_levels(levels), (), AlarmRate("2/20", 10.0, 0.1)).cells[0]
    below_mean = 1 - 100.0 / 108.8  # the geometric mean of the levels
    assert of_9.threshold < of_19.threshold
    assert of_19.threshold == pytest.approx(below_mean, abs=0.02)


def test_rarer_alarms_and_wider_scatter_give_wider_thresholds() -> None:
    narrow, wide = (
        calibrate(a_a_runs(20, spread), (), A_YEAR).cells[0].threshold for spread in (0.01, 0.03)
    )
    often = calibrate(a_a_runs(20, 0.01), (), ONE_IN_20).cells[0].threshold
    assert often < narrow < wide
    assert 0.01 < often < 0.05
    assert 0.04 < narrow < 0.15


def test_cells_that_scatter_together_share_a_threshold_and_the_mean_over_them_has_one() -> None:
    alone = calibrate(a_a_runs(20), (), ONE_IN_20)
    together = calibrate(a_a_runs(20, planned=4), (), ONE_IN_20)
    assert (alone.figures, together.figures) == (1, 5)
    assert [one.threshold for one in together.cells] == pytest.approx(
        [alone.cells[0].threshold] * 4
    )
    assert together.overall[0].threshold == pytest.approx(alone.cells[0].threshold)
    assert not alone.overall


def test_a_figure_that_does_not_scatter_gets_the_least_threshold() -> None:
    found = calibrate(a_a_runs(12), (Metric.MEMORY,), ONE_IN_20).cells
    assert [one.figure.text for one in found] == ["memory"]
    assert found[0].threshold == pytest.approx(0.001)


def test_metrics_for_which_less_is_better_are_judged_by_what_is_above() -> None:
    levels = [100.0] * 18 + [150.0]  # one run much faster: its step p95 is much lower
    of_speed = calibrate(with_levels(levels), (Metric.THROUGHPUT,), ONE_IN_20).cells[0]
    of_steps = calibrate(with_levels(levels), (Metric.STEP_P95,), ONE_IN_20).cells[0]
    assert of_speed.threshold == pytest.approx(of_steps.threshold)
    assert of_speed.threshold < 0.05, "the outlier is on the good side"


def test_what_it_rests_on_is_kept() -> None:
    runs = a_a_runs(12, flags=("contended",))
    found = calibrate(runs, (), A_YEAR)
    assert (found.runs, found.cells[0].runs, found.cells[0].launches) == (12, 12, 3)
    assert found.conditions == {"contended": 12}
    assert found.hosts == ("node-1",)
    assert (found.first_at[:10], found.last_at[:10]) == ("2026-01-01", "2026-01-12")
    assert (found.false_alarms, found.chance) == ("1/year", 1 / 3650)
    assert 0.01 < found.cells[0].between < 0.04
    assert found.cells[0].within == pytest.approx(0.001, rel=0.1)


def test_more_launches_a_run_narrow_the_threshold_and_fewer_widen_it() -> None:
    generator = random.Random(2)
    (cell, *_) = cells()
    noisy = [
        side(result(cell, [100 * (1 + generator.gauss(0, 0.05)) for _ in range(3)]))
        for _ in range(20)
    ]
    scatter = calibrate(noisy, (), ONE_IN_20).cells[0]
    assert scatter.threshold_of(3) == pytest.approx(scatter.threshold)
    assert scatter.threshold_of(9) < scatter.threshold < scatter.threshold_of(1)


def test_runs_of_one_launch_have_a_threshold() -> None:
    scatter = calibrate(a_a_runs(15, launches=1), (), ONE_IN_20).cells[0]
    assert scatter.within is None
    assert scatter.threshold_of(5) == pytest.approx(scatter.threshold), "never below what is known"


@pytest.mark.parametrize("count", [1, MIN_RUNS - 1])
def test_too_few_runs_are_refused_with_the_reason(count: int) -> None:
    with pytest.raises(UsageError, match=rf"{count} A/A runs?; expected 10 or more: how far"):
        calibrate(a_a_runs(count), (), A_YEAR)


def test_a_cell_that_failed_in_some_runs_has_its_own_count() -> None:
    runs = a_a_runs(12, planned=2)
    failed = [
        run.model_copy(
            update={
                "cells": (
                    run.cells[0],
                    run.cells[1].model_copy(update={"state": State.CRASHED, "launches": ()}),
                )
            }
        )
        for run in runs[:3]
    ]
    found = calibrate([*failed, *runs[3:]], (), A_YEAR)
    assert [one.cell for one in found.cells] == [runs[0].cells[0].cell.id], "nine runs are too few"


def test_an_a_a_run_far_from_all_others_leaves_numbers_finite() -> None:
    found = calibrate(
        with_levels([100 + 0.1 * (place % 3) for place in range(19)] + [70.0]), (), A_YEAR
    )
    (cell,) = found.cells
    assert cell.threshold == MOST
    assert cell.threshold_of(1) == MOST


def test_a_flag_of_one_launch_counts_for_its_run() -> None:
    runs = a_a_runs(12)
    (cell,) = runs[0].cells
    first, *others = cell.launches
    contended = first.model_copy(update={"flags": ("contended",)})
    quiet = [one.model_copy(update={"flags": ()}) for one in others]
    cell = cell.model_copy(update={"flags": ("contended",), "launches": (contended, *quiet)})
    runs[0] = runs[0].model_copy(update={"cells": (cell,)})
    assert calibrate(runs, (), A_YEAR).conditions == {"contended": 1}
