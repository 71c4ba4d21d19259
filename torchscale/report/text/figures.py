"""The figures of a training cell: one heading, one definition, one format and one name for other
programs each, for every table and format.

Sections, the terminal, live lines, charts, ``summary.csv`` and exporters take values, texts and
names from here, so that a figure is the same wherever it is shown. ``docs/method.md`` lists the
definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import Efficiency, Grade
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.document import DASH, Column, TableValue, Tone, optional_text, optional_value
from torchscale.report.table import ColumnOf
from torchscale.report.text.run_labels import on_cuda
from torchscale.schema.exports.report import Decomposition
from torchscale.schema.state import State
from torchscale.util.interval_text import (
    Interval,
    format_interval,
    format_share_interval,
    with_interval,
)
from torchscale.util.units import format_bytes, format_percent, format_rate, format_seconds

T = TypeVar("T")


@dataclass(frozen=True)
class Quantity:
    """A figure of a training cell: how it is computed, shown, and named in every format.

    Attributes:
        heading: Heading of the figure's column.
        definition: Over which steps, launches and ranks, and how they are combined.
        value: Value in SI units, bytes or as a share; ``None`` was not measured.
        text: A value as people read it, with its unit unless the heading has it.
        interval: 95 % interval of the figure; ``None`` for a figure that has none.
        end_text: Writes an end of it with so many digits; ``None`` where the value is shown without
            its interval, since another figure shows the same.
        key: Name of the figure in exporters, with the unit at the end; empty where they do not have
            it.
        unit: There; empty for a share.
        higher_is_better: There; ``None`` where neither is.
        csv: Column of the figure in ``summary.csv``; empty where it has none.
        csv_scale: Factor from the unit of ``value`` to that of the column.
        panel: Title of its panel in a dashboard; empty where it has none.
        of_gpus: Whether it is of cells on GPUs, or on CPUs; ``None`` for both.
    """

    heading: str
    definition: str
    value: Callable[[TrainingSummary], float | None]
    text: Callable[[float], str]
    interval: Callable[[TrainingSummary], Interval | None] | None = None
    end_text: Callable[[float, int], str] | None = None
    key: str = ""
    unit: str = ""
    higher_is_better: bool | None = None
    csv: str = ""
    csv_scale: int = 1
    panel: str = ""
    of_gpus: bool | None = None

    def of(self, summary: TrainingSummary) -> TableValue:
        """The cell's value as a table shows it, with its interval; – where it was not measured."""
        ends = self.interval_text(summary)
        return optional_value(
            self.value(summary), lambda value: with_interval(self.text(value), ends)
        )

    def value_text(self, summary: TrainingSummary) -> str:
        """The value alone; – where it was not measured."""
        return optional_text(self.value(summary), self.text)

    def interval_text(self, summary: TrainingSummary) -> str:
        """``1,200 to 1,260``; empty where there is none, or it is not shown."""
        value, ends = self.value(summary), self.ends(summary)
        if value is None or ends is None or self.end_text is None:
            return ""
        return format_interval(value, ends, self.end_text)

    def ends(self, summary: TrainingSummary) -> Interval | None:
        """Ends of the 95 % interval; ``None`` where there is none."""
        if self.interval is None:
            return None
        return self.interval(summary)

    @property
    def column(self) -> Column:
        """A column of it."""
        return self.shown.column

    @property
    def shown(self) -> ColumnOf[TrainingSummary]:
        """A column with its values."""
        return ColumnOf(self.heading, self.of, numeric=True)


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


@dataclass(frozen=True)
class LostPart:
    """A part of the time that a device count adds to the mean step.

    Attributes:
        heading: Heading of the part's column and of its layer in charts; ``+`` marks what is added
            to the ideal step.
        phrase: What costs this time, as a sentence names it.
        seconds: Seconds of a step; negative where the larger count is faster.
    """

    heading: str
    phrase: str
    seconds: Callable[[Decomposition], float]

    @property
    def column(self) -> Column:
        """A column of it."""
        return Column(self.heading, numeric=True)

    def share(self, lost: Decomposition) -> float:
        """Share of the measured step."""
        return self.seconds(lost) / lost.step

    def of(self, lost: Decomposition) -> TableValue:
        """Seconds and share as a table shows them."""
        seconds = self.seconds(lost)
        return TableValue(
            f"{format_seconds(seconds)} ({format_percent(self.share(lost))})", seconds
        )


LOST_PARTS = (
    LostPart("+ compute", "slower compute", lambda lost: lost.compute),
    LostPart("+ data wait", "waiting for data", lambda lost: lost.data_wait),
    LostPart("+ straggler wait", "waiting for slower ranks", lambda lost: lost.straggler_wait),
    LostPart(
        "+ exposed communication", "exposed communication", lambda lost: lost.exposed_communication
    ),
    LostPart("unexplained", "unexplained time", lambda lost: lost.unexplained),
)
"""With the ideal step they add up to the mean step (``docs/diagnosis.md``, The loss
decomposition)."""

_GRADE_TONE: dict[Grade, Tone] = {"excellent": Tone.GOOD, "good": Tone.GOOD, "low": Tone.CAUTION}
_STATE_TONE = {
    State.OK: Tone.GOOD,
    State.PARTIAL: Tone.PLAIN,
    State.WAITING: Tone.DIM,
    State.SKIPPED: Tone.DIM,
    State.INTERRUPTED: Tone.CAUTION,
    State.INCOMPLETE: Tone.CAUTION,
}


def memory_quantity(summary: RunSummary) -> Quantity:
    """What training takes of memory: by the allocator on GPUs, by the process on CPUs."""
    if on_cuda(summary):
        return PEAK_ALLOCATED
    return PROCESS_GROWTH


def efficiency_value(summary: TrainingSummary) -> TableValue:
    """Scaling efficiency with its 95 % interval: – without a baseline, ``*`` where it is based on a
    flagged cell. It has a tone only where its interval is certain of it."""
    efficiency = summary.efficiency
    if efficiency is None:
        return DASH
    if efficiency.baseline_world_size == summary.cell.world_size:
        return TableValue("baseline", efficiency.value, Tone.DIM)
    text = format_efficiency(efficiency, mark="*" * bool(efficiency.flags))
    return TableValue(
        text,
        efficiency.value,
        Tone.PLAIN if efficiency.grade is None else _GRADE_TONE[efficiency.grade],
    )


def format_efficiency(efficiency: Efficiency, *, mark: str = "") -> str:
    """``52.3 % (25 to 84 %)``, with ``mark`` after the value; without the interval where there is
    none."""
    value = f"{format_percent(efficiency.value)}{mark}"
    if efficiency.interval is None:
        return value
    return with_interval(value, format_share_interval(efficiency.value, efficiency.interval))


def state_value(summary: TrainingSummary) -> TableValue:
    """The state: ``2 of 3 launches`` of a cell that is partly done."""
    if summary.state is State.PARTIAL:
        text = launches_label(summary)
    else:
        text = summary.state.value
    return TableValue(text, summary.state.value, state_tone(summary.state))


def state_tone(state: State) -> Tone:
    """What is still to run is no reason for caution."""
    return _STATE_TONE.get(state, Tone.BAD)


def launches_label(summary: TrainingSummary) -> str:
    """``2 of 3 launches``."""
    return f"{summary.launches} of {summary.planned_launches} launches"


def samples_text(summary: TrainingSummary) -> str:
    """``1,450 samples/s (1,440 to 1,460)``; ``12.5 steps/s`` where samples are not known."""
    if summary.figures is not None and summary.figures.samples_per_second is None:
        return f"{STEP_RATE.value_text(summary)} steps/s"
    rate = f"{THROUGHPUT.value_text(summary)} samples/s"
    return with_interval(rate, THROUGHPUT.interval_text(summary))


def rates(cells: Sequence[TrainingSummary]) -> tuple[Quantity, ...]:
    """Samples/s, and steps/s where the samples of a cell are not known; the one alone where the
    other has no value."""
    known = [cell.figures.samples_per_second is not None for cell in cells if cell.figures]
    if all(known):
        return (THROUGHPUT,)
    if any(known):
        return THROUGHPUT, STEP_RATE
    return (STEP_RATE,)


def throughput_text(summary: TrainingSummary) -> str:
    """``1,450 samples/s (1,440 to 1,460), 220 ms/step``, with tokens where samples have any."""
    parts = [samples_text(summary)]
    if TOKENS.value(summary) is not None:
        parts.append(f"{TOKENS.value_text(summary)} tokens/s")
    if PADDING.value(summary):
        parts.append(f"{PADDING.value_text(summary)} padding")
    return ", ".join([*parts, f"{STEP_MEAN.value_text(summary)}/step"])
