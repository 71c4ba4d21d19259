"""The figures of a training cell: one heading, one definition, one format and one name for other
programs each, for every table and format.

Sections, the terminal, live lines, charts, ``summary.csv`` and exporters take values, texts and
names from here, so that a figure is the same wherever it is shown. ``docs/method.md`` lists the
definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.text.quantity import Quantity
from torchscale.util.interval_text import Interval
from torchscale.util.units import format_bytes, format_percent, format_rate, format_seconds

T = TypeVar("T")


def _measured(
    value: Callable[[Figures], T | None],
) -> Callable[[TrainingSummary], T | None]:
    """A value of the cell's figures, where it has any."""

    def of_cell(summary: TrainingSummary) -> T | None:
        if summary.figures is None:
            return None
        return value(summary.figures)

    return of_cell


def _padding_share(figures: Figures) -> float | None:
    if figures.documents is None:
        return None
    return figures.documents.padding_share


def _efficiency(summary: TrainingSummary) -> float | None:
    if summary.efficiency is None:
        return None
    return summary.efficiency.value


def _efficiency_interval(summary: TrainingSummary) -> Interval | None:
    if summary.efficiency is None:
        return None
    return summary.efficiency.interval


def _utilization(summary: TrainingSummary) -> float | None:
    if summary.compute is None:
        return None
    return summary.compute.mfu


_of_time = partial(Quantity, text=format_seconds, unit="s", higher_is_better=False, csv_scale=1000)
"""Seconds; ``summary.csv`` has milliseconds."""

THROUGHPUT = Quantity(
    "samples/s",
    "samples of all devices ÷ summed wall time of the batches of steps; geometric mean over "
    "launches. In brackets the ends of its 95 % interval: over launches, or of a single launch "
    "over its batches of steps",
    _measured(lambda figures: figures.samples_per_second),
    format_rate,
    _measured(lambda figures: figures.rate_interval(figures.samples_per_second)),
    format_rate,
    key="samples_per_second",
    unit="samples/s",
    higher_is_better=True,
    csv="samples_per_second",
    panel="Throughput, with its 95 % interval",
)
STEP_RATE = Quantity(
    "steps/s",
    "1 ÷ mean step, of scripts whose samples are not known; its interval is that of the mean step, "
    "inverted",
    _measured(lambda figures: 1 / figures.step_mean),
    format_rate,
    _measured(lambda figures: figures.rate_interval(1 / figures.step_mean)),
    format_rate,
)
THROUGHPUT_PER_DEVICE = Quantity(
    "per device",
    "samples/s ÷ number of devices",
    _measured(lambda figures: figures.samples_per_second_per_device),
    format_rate,
    _measured(lambda figures: figures.rate_interval(figures.samples_per_second_per_device)),
    key="samples_per_second_per_device",
    unit="samples/s",
    higher_is_better=True,
    csv="samples_per_second_per_gpu",
    panel="Throughput per device",
)
TOKENS = Quantity(
    "tokens/s",
    "samples/s × tokens of a sample; of samples of different lengths without their padding",
    _measured(lambda figures: figures.tokens_per_second),
    format_rate,
    _measured(lambda figures: figures.rate_interval(figures.tokens_per_second)),
    key="tokens_per_second",
    unit="tokens/s",
    higher_is_better=True,
    csv="tokens_per_second",
    panel="Tokens per second",
)
PADDING = Quantity(
    "padding",
    "share of the computed tokens that only fill samples up to the longest beside them",
    _measured(_padding_share),
    format_percent,
    key="padding_share",
    higher_is_better=False,
    csv="padding_share",
)
STEP_MEAN = _of_time(
    "mean step",
    "samples of a step ÷ samples/s: the geometric mean over launches of each launch's mean step. "
    "Its interval is that of samples/s, inverted",
    _measured(lambda figures: figures.step_mean),
    interval=_measured(lambda figures: figures.step_interval),
    key="step_mean_seconds",
    csv="step_time_mean_ms",
    panel="Mean step, with its 95 % interval",
)
STEP_P50 = _of_time(
    "p50",
    "median over all steps of all launches, per step the slowest rank",
    _measured(lambda figures: figures.steps.p50),
    key="step_p50_seconds",
    csv="step_time_p50_ms",
)
STEP_P95 = _of_time(
    "p95",
    "95th percentile of the same steps",
    _measured(lambda figures: figures.steps.p95),
    key="step_p95_seconds",
    csv="step_time_p95_ms",
    panel="95th percentile of the step",
)
STEP_P99 = _of_time(
    "p99",
    "99th percentile of the same steps",
    _measured(lambda figures: figures.steps.p99),
    key="step_p99_seconds",
    csv="step_time_p99_ms",
)
STEP_MAXIMUM = _of_time(
    "slowest",
    "the longest of the same steps",
    _measured(lambda figures: figures.steps.maximum),
)
EFFICIENCY = Quantity(
    "efficiency",
    "throughput per device over that of the smallest count of its series",
    _efficiency,
    format_percent,
    _efficiency_interval,
    key="efficiency",
    higher_is_better=True,
    csv="efficiency",
    panel="Scaling efficiency",
)
PEAK_ALLOCATED = Quantity(
    "peak allocated",
    "the CUDA allocator's peak; the largest over ranks and launches",
    _measured(lambda figures: figures.peak_memory_bytes),
    format_bytes,
    key="peak_memory_bytes",
    unit="B",
    higher_is_better=False,
    csv="peak_memory_bytes",
    panel="Peak memory of the fullest device",
    of_gpus=True,
)
PROCESS_GROWTH = replace(
    PEAK_ALLOCATED,
    heading="RSS growth",
    definition="growth of a process's resident memory from before the model was built to its peak; "
    "the largest over ranks and launches",
    of_gpus=False,
)
DATA_WAIT = _of_time(
    "data wait",
    "mean per step over ranks and launches, as all phases",
    _measured(lambda figures: figures.phases.data_wait),
)
FORWARD = _of_time(
    "forward",
    "until the loss is computed",
    _measured(lambda figures: figures.phases.forward),
)
BACKWARD = _of_time(
    "backward",
    "until the last gradient is computed",
    _measured(lambda figures: figures.phases.backward),
)
EXPOSED_SYNC = _of_time(
    "exposed sync",
    "gradient and buffer synchronization that no compute hides, waiting for other ranks included",
    _measured(lambda figures: figures.phases.sync),
)
OPTIMIZER = _of_time(
    "optimizer",
    "clipping, step, clearing the gradients",
    _measured(lambda figures: figures.phases.optimizer),
)
COMPUTE = _of_time(
    "compute",
    "passes and optimizer of a script of your own, which are not told apart",
    _measured(lambda figures: figures.phases.compute),
)
COMPILING = _of_time(
    "compiling",
    "torch.compile on the slowest rank, mean over launches; not part of any step",
    _measured(lambda figures: figures.compile_seconds),
)
UTILIZATION = Quantity(
    "MFU",
    "model FLOPs of a step ÷ its time ÷ the device's peak",
    _utilization,
    format_percent,
    key="mfu",
    higher_is_better=True,
    csv="mfu",
    panel="Model FLOPs utilization",
)
ENERGY = Quantity(
    "joules/step",
    "of all GPUs; geometric mean over launches",
    _measured(lambda figures: figures.joules_per_step),
    format_rate,
    key="joules_per_step",
    unit="J",
    higher_is_better=False,
    csv="joules_per_step",
    panel="Energy of a step, all GPUs",
)
SAMPLES_PER_JOULE = Quantity(
    "samples/joule",
    "samples of a step ÷ its joules",
    _measured(lambda figures: figures.samples_per_joule),
    format_rate,
    csv="samples_per_joule",
)
QUANTILES = (STEP_P50, STEP_P95, STEP_P99, STEP_MAXIMUM)
PHASES = (DATA_WAIT, FORWARD, BACKWARD, EXPOSED_SYNC, OPTIMIZER)
DEFINED = (
    THROUGHPUT,
    STEP_RATE,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    PADDING,
    STEP_MEAN,
    *QUANTILES,
    PEAK_ALLOCATED,
    PROCESS_GROWTH,
    *PHASES,
    COMPUTE,
    COMPILING,
)
"""Figures that reports show with their definitions, in the order of ``docs/method.md``."""
EXPORTED = (
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    PADDING,
    STEP_MEAN,
    STEP_P50,
    STEP_P95,
    STEP_P99,
    EFFICIENCY,
    PEAK_ALLOCATED,
    PROCESS_GROWTH,
    UTILIZATION,
    ENERGY,
)
"""Figures that exporters give to other programs, in their order."""
