"""The figures of a training cell, with the definitions that tables show."""

from __future__ import annotations

from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.exporters.figure import Figure, finite_bounds
from torchscale.report.text.figures import (
    STEP_MEAN,
    STEP_P50,
    STEP_P95,
    STEP_P99,
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    Quantity,
    memory_definition,
)

_RATES = (
    ("samples_per_second", "samples/s", THROUGHPUT),
    ("samples_per_second_per_device", "samples/s", THROUGHPUT_PER_DEVICE),
    ("tokens_per_second", "tokens/s", TOKENS),
)
_QUANTILES = (
    ("step_p50_seconds", STEP_P50),
    ("step_p95_seconds", STEP_P95),
    ("step_p99_seconds", STEP_P99),
)


def training_figures(summary: TrainingSummary) -> tuple[Figure, ...]:
    """What a cell measured; nothing where it did not."""
    figures = summary.figures
    if figures is None:
        return ()
    listed = [
        *(
            _figure(figures, name, unit, quantity, higher_is_better=True)
            for name, unit, quantity in _RATES
        ),
        _figure(figures, "step_mean_seconds", "s", STEP_MEAN, higher_is_better=False),
        *(
            _figure(figures, name, "s", quantity, higher_is_better=False)
            for name, quantity in _QUANTILES
        ),
        *_efficiency(summary),
        *_plain(
            "peak_memory_bytes",
            "B",
            memory_definition(on_cuda=figures.on_cuda),
            figures.peak_memory_bytes,
        ),
        *_utilization(summary),
        *_plain(
            "joules_per_step",
            "J",
            "of all GPUs; geometric mean over launches",
            figures.joules_per_step,
        ),
    ]
    return tuple(figure for figure in listed if figure is not None)


def _figure(
    figures: Figures,
    name: str,
    unit: str,
    quantity: Quantity,
    *,
    higher_is_better: bool,
) -> Figure | None:
    value = quantity.value(figures)
    if value is None:
        return None
    return Figure(
        name,
        unit,
        quantity.definition,
        value,
        finite_bounds(quantity.ends(figures)),
        higher_is_better,
    )


def _plain(
    name: str, unit: str, definition: str, value: float | None, *, higher_is_better: bool = False
) -> list[Figure]:
    """A figure without an interval, where it was measured."""
    return [] if value is None else [Figure(name, unit, definition, value, None, higher_is_better)]


def _efficiency(summary: TrainingSummary) -> list[Figure]:
    efficiency = summary.efficiency
    if efficiency is None:
        return []
    definition = "throughput per device over that of the smallest count of its series"
    return [Figure("efficiency", "", definition, efficiency.value, efficiency.interval, True)]


def _utilization(summary: TrainingSummary) -> list[Figure]:
    compute = summary.compute
    if compute is None:
        return []
    definition = "model FLOPs of a step ÷ its time ÷ the device's peak"
    return _plain("mfu", "", definition, compute.mfu, higher_is_better=True)
