"""Predictions for the terminal."""

from __future__ import annotations

from rich.console import Console

from torchscale.features.decide.forecast.page import (
    PredictionReport,
    exposure_sentence,
    prediction_table,
    series_label,
)


def print_predictions(report: PredictionReport, console: Console) -> None:
    """A table for each series: what is predicted, its 90 % interval, and what it stands on."""
    for outcome in report.outcomes:
        if not outcome.predictions:
            continue
        table = prediction_table(outcome, with_cost=report.price is not None)
        counts = ", ".join(f"{point.gpus:,}" for point in outcome.series.points)
        console.print(
            f"Predicted from {counts} GPUs: {series_label(outcome)}",
            markup=False,
            style="bold",
            soft_wrap=True,
        )
        lines = [
            [column.title for column in table.columns],
            *([value.text for value in row] for row in table.rows),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for number, line in enumerate(lines):
            texts = [
                f"{text:>{width}}" if column.numeric else f"{text:<{width}}"
                for text, width, column in zip(line, widths, table.columns, strict=True)
            ]
            style = None
            if number == 0:
                style = "bold"
            console.print("  ".join(texts).rstrip(), markup=False, style=style, soft_wrap=True)
        console.print(exposure_sentence(outcome), markup=False, soft_wrap=True)
