"""Predictions for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from torchscale.features.decide.forecast.page import (
    PredictionReport,
    exposure_sentence,
    prediction_table,
    series_label,
)
from torchscale.report.document import Block, Paragraph
from torchscale.report.formats.console import print_blocks


def print_predictions(report: PredictionReport, console: Console) -> None:
    """A table for each series: what is predicted, its 90 % interval, and what it stands on."""
    print_blocks(_blocks(report), console)


def _blocks(report: PredictionReport) -> Iterator[Block]:
    for outcome in report.outcomes:
        if outcome.predictions:
            counts = ", ".join(f"{point.gpus:,}" for point in outcome.series.points)
            caption = f"Predicted from {counts} GPUs: {series_label(outcome)}"
            table = prediction_table(outcome, with_cost=report.price is not None)
            yield replace(table, caption=caption)
            yield Paragraph(exposure_sentence(outcome))
