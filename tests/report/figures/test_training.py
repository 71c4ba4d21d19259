"""The figures of a training cell and the ends of their intervals, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests import factories
from torchscale.analysis.summary.run import summarize
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.figures.training import training_figures


@pytest.fixture(scope="module")
def summary() -> TrainingSummary:
    return summarize(factories.run()).measured[0]


def bounds(summary: TrainingSummary, name: str, **changes: Any) -> tuple[float, float] | None:
    figures = summary.figures
    assert isinstance(figures, Figures)
    changed = replace(
        summary, figures=replace(figures, samples_per_second=100.0, step_mean=0.2, **changes)
    )
    (figure,) = [figure for figure in training_figures(changed) if figure.name == name]
    return figure.bounds


def test_the_interval_is_from_launch_to_launch_where_there_are_several(
    summary: TrainingSummary,
) -> None:
    widths = {"run_half_width": 0.25, "half_width": 0.1}
    assert bounds(summary, "samples_per_second", **widths) == (80.0, 125.0)
    assert bounds(summary, "step_mean_seconds", **widths) == pytest.approx((0.16, 0.25))


def test_a_definition_says_nothing_of_brackets_which_exports_do_not_have(
    summary: TrainingSummary,
) -> None:
    assert not [figure for figure in training_figures(summary) if "bracket" in figure.definition]


def test_of_a_single_launch_it_is_that_of_its_mean_step(summary: TrainingSummary) -> None:
    widths = {"run_half_width": None, "half_width": 0.2}
    assert bounds(summary, "step_mean_seconds", **widths) == pytest.approx((0.16, 0.24))
    assert bounds(summary, "samples_per_second", **widths) == pytest.approx((100 / 1.2, 125.0))


def test_a_rate_without_an_upper_end_has_no_bounds_and_its_step_begins_at_zero(
    summary: TrainingSummary,
) -> None:
    widths = {"run_half_width": None, "half_width": 1.5}
    assert bounds(summary, "samples_per_second", **widths) is None
    assert bounds(summary, "step_mean_seconds", **widths) == pytest.approx((0.0, 0.5))


def test_a_single_batch_has_no_interval(summary: TrainingSummary) -> None:
    widths = {"run_half_width": None, "half_width": None}
    assert bounds(summary, "samples_per_second", **widths) is None
    assert bounds(summary, "step_mean_seconds", **widths) is None


def test_what_was_not_measured_is_not_there(summary: TrainingSummary) -> None:
    assert training_figures(replace(summary, figures=None)) == ()
    names = [figure.name for figure in training_figures(summary)]
    assert len(set(names)) == len(names)
    figures = summary.figures
    assert figures is not None
    without = replace(
        summary,
        figures=replace(figures, peak_memory_bytes=None, tokens_per_second=None),
        compute=None,
    )
    left = {figure.name for figure in training_figures(without)}
    assert not left & {"peak_memory_bytes", "tokens_per_second", "mfu", "joules_per_step"}
    assert {"samples_per_second", "step_mean_seconds", "step_p95_seconds"} <= left
