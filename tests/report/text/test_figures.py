"""The table of a training cell's figures: its entries fit together, and what was not measured is
shown as such."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import factories
from torchscale.analysis.summary.run import summarize
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.formats.columns import SUMMARY_COLUMNS
from torchscale.report.text.cell_values import throughput_text
from torchscale.report.text.figures import (
    DEFINED,
    EXPORTED,
    PEAK_ALLOCATED,
    PROCESS_GROWTH,
    THROUGHPUT,
    TOKENS,
)
from torchscale.report.text.quantity import Quantity
from torchscale.report.values import DASH


@pytest.fixture(scope="module")
def summary() -> TrainingSummary:
    return summarize(factories.run()).measured[0]


def test_an_exported_figure_has_one_name_everywhere() -> None:
    for on_gpus in (True, False):
        chosen = [one for one in EXPORTED if one.of_gpus in (None, on_gpus)]
        keys = [one.key for one in chosen]
        assert all(keys)
        assert len(set(keys)) == len(keys)
        assert {one.csv for one in chosen} <= set(SUMMARY_COLUMNS)
    assert (PEAK_ALLOCATED.key, PEAK_ALLOCATED.csv) == (PROCESS_GROWTH.key, PROCESS_GROWTH.csv)
    assert PEAK_ALLOCATED.definition != PROCESS_GROWTH.definition


@pytest.mark.parametrize(
    "quantity", dict.fromkeys((*DEFINED, *EXPORTED)), ids=lambda quantity: quantity.heading
)
def test_a_cell_without_figures_has_none(summary: TrainingSummary, quantity: Quantity) -> None:
    nothing = replace(summary, figures=None, efficiency=None, compute=None)
    assert quantity.value(nothing) is None
    assert quantity.ends(nothing) is None
    assert quantity.of(nothing) == DASH
    assert (quantity.value_text(nothing), quantity.interval_text(nothing)) == (DASH.text, "")


def test_throughput_in_one_line_has_tokens_where_samples_have_any(
    summary: TrainingSummary,
) -> None:
    assert summary.figures is not None
    figures = replace(
        summary.figures,
        samples_per_second=1450.0,
        tokens_per_second=None,
        step_mean=0.22,
        run_half_width=0.01,
    )
    without = replace(summary, figures=figures)
    interval = THROUGHPUT.interval_text(without)
    assert throughput_text(without) == f"1,450 samples/s ({interval}), 220 ms/step"
    tokens = replace(summary, figures=replace(figures, tokens_per_second=92800.0))
    assert f", {TOKENS.value_text(tokens)} tokens/s, 220 ms/step" in throughput_text(tokens)
