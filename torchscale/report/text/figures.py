"""The figures of a training cell as text: one heading, one definition and one format each, for
every table and format.

Sections, the terminal, live lines and charts take values and texts from here, so that a figure
reads the same wherever it is shown. ``docs/method.md`` lists the definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.decomposition import Decomposition
from torchscale.analysis.training.scaling import Efficiency, Grade
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.document import DASH, Column, TableValue, Tone, optional_value
from torchscale.report.text.labels import on_cuda
from torchscale.schema.state import State
from torchscale.util.interval_text import (
    Interval,
    format_interval,
    format_share_interval,
    with_interval,
)
from torchscale.util.units import format_bytes, format_percent, format_rate, format_seconds


@dataclass(frozen=True)
class Quantity:
    """A figure of a cell with figures.

    Attributes:
        heading: Of its column.
        definition: Over which steps, launches and ranks, and how they are combined.
        value: In SI units, bytes or as a share; ``None`` was not measured.
        text: A value as people read it, with its unit unless the heading has it.
        interval: Its 95 % interval; ``None`` for a figure that has none.
        end_text: Writes an end of it with so many digits; ``None`` where the value is shown without
            its interval, since another figure shows the same.
    """

    heading: str
    definition: str
    value: Callable[[Figures], float | None]
    text: Callable[[float], str]
    interval: Callable[[Figures], Interval | None] | None = None
    end_text: Callable[[float, int], str] | None = None

    def of(self, summary: TrainingSummary) -> TableValue:
        """The cell's value as a table shows it, with its interval; – where it was not measured."""
        if summary.figures is None:
            return DASH
        ends = self.interval_text(summary.figures)
        return optional_value(
            self.value(summary.figures), lambda value: with_interval(self.text(value), ends)
        )

    def interval_text(self, figures: Figures) -> str:
        """``1,200 to 1,260``; empty where there is none, or it is not shown."""
        value, ends = self.value(figures), self.ends(figures)
        if value is None or ends is None or self.end_text is None:
            return ""
        return format_interval(value, ends, self.end_text)

    def ends(self, figures: Figures) -> Interval | None:
        """Of the 95 % interval; ``None`` where there is none."""
        if self.interval is None:
            return None
        return self.interval(figures)

    @property
    def column(self) -> Column:
        """A column of it."""
        return Column(self.heading, numeric=True)


THROUGHPUT = Quantity(
    "samples/s",
    "samples of all devices ÷ summed wall time of the batches of steps; geometric mean over "
    "launches. In brackets the "
    "ends of its 95 % interval: over launches, or of a single launch over its batches of steps",
    lambda figures: figures.samples_per_second,
    format_rate,
    lambda figures: figures.rate_interval(figures.samples_per_second),
    format_rate,
)
THROUGHPUT_PER_DEVICE = Quantity(
    "per device",
    "samples/s ÷ number of devices",
    lambda figures: figures.samples_per_second_per_device,
    format_rate,
    lambda figures: figures.rate_interval(figures.samples_per_second_per_device),
)
TOKENS = Quantity(
    "tokens/s",
    "samples/s × tokens of a sample",
    lambda figures: figures.tokens_per_second,
    format_rate,
    lambda figures: figures.rate_interval(figures.tokens_per_second),
)
STEP_MEAN = Quantity(
    "mean step",
    "samples of a step ÷ samples/s: the geometric mean over launches of each launch's mean step. "
    "Its interval is that "
    "of samples/s, inverted",
    lambda figures: figures.step_mean,
    format_seconds,
    lambda figures: figures.step_interval,
)
STEP_P50 = Quantity(
    "p50",
    "median over all steps of all launches, per step the slowest rank",
    lambda figures: figures.steps.p50,
    format_seconds,
)
STEP_P95 = Quantity(
    "p95", "95th percentile of the same steps", lambda figures: figures.steps.p95, format_seconds
)
STEP_P99 = Quantity(
    "p99", "99th percentile of the same steps", lambda figures: figures.steps.p99, format_seconds
)
STEP_MAXIMUM = Quantity(
    "slowest",
    "the longest of the same steps",
    lambda figures: figures.steps.maximum,
    format_seconds,
)
_PEAK_ALLOCATED = Quantity(
    "peak allocated",
    "the CUDA allocator's peak; the largest over ranks and launches",
    lambda figures: figures.peak_memory_bytes,
    format_bytes,
)
_PROCESS_GROWTH = Quantity(
    "RSS growth",
    "growth of a process's resident memory from before the model was built to its peak; the "
    "largest over ranks and "
    "launches",
    lambda figures: figures.peak_memory_bytes,
    format_bytes,
)
DATA_WAIT = Quantity(
    "data wait",
    "mean per step over ranks and launches, as all phases",
    lambda figures: figures.phases.data_wait,
    format_seconds,
)
FORWARD = Quantity(
    "forward", "until the loss is computed", lambda figures: figures.phases.forward, format_seconds
)
BACKWARD = Quantity(
    "backward",
    "until the last gradient is computed",
    lambda figures: figures.phases.backward,
    format_seconds,
)
EXPOSED_SYNC = Quantity(
    "exposed sync",
    "gradient and buffer synchronization that no compute hides, waiting for other ranks included",
    lambda figures: figures.phases.sync,
    format_seconds,
)
OPTIMIZER = Quantity(
    "optimizer",
    "clipping, step, clearing the gradients",
    lambda figures: figures.phases.optimizer,
    format_seconds,
)
COMPILING = Quantity(
    "compiling",
    "torch.compile on the slowest rank, mean over launches; not part of any step",
    lambda figures: figures.compile_seconds,
    format_seconds,
)
QUANTILES = (STEP_P50, STEP_P95, STEP_P99, STEP_MAXIMUM)
PHASES = (DATA_WAIT, FORWARD, BACKWARD, EXPOSED_SYNC, OPTIMIZER)
DEFINED = (
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    STEP_MEAN,
    *QUANTILES,
    _PEAK_ALLOCATED,
    _PROCESS_GROWTH,
    *PHASES,
    COMPILING,
)
"""All of them, in the order of ``docs/method.md``."""


@dataclass(frozen=True)
class LostPart:
    """A part of the time that a device count adds to the mean step.

    Attributes:
        heading: Of its column and of its layer in charts; ``+`` marks what is added to the ideal
            step.
        phrase: What costs this time, as a sentence names it.
        seconds: Of a step; negative where the larger count is faster.
    """

    heading: str
    phrase: str
    seconds: Callable[[Decomposition], float]

    @property
    def column(self) -> Column:
        """A column of it."""
        return Column(self.heading, numeric=True)

    def share(self, lost: Decomposition) -> float:
        """Of the measured step."""
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
        return _PEAK_ALLOCATED
    return _PROCESS_GROWTH


def memory_definition(*, on_cuda: bool) -> str:
    """What a cell's peak memory is."""
    return (_PEAK_ALLOCATED if on_cuda else _PROCESS_GROWTH).definition


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


def samples_text(figures: Figures) -> str:
    """``1,450 samples/s (1,440 to 1,460)``."""
    rate = f"{THROUGHPUT.text(figures.samples_per_second)} samples/s"
    return with_interval(rate, THROUGHPUT.interval_text(figures))


def throughput_text(figures: Figures) -> str:
    """``1,450 samples/s (1,440 to 1,460), 220 ms/step``, with tokens where samples have any."""
    parts = [samples_text(figures)]
    if figures.tokens_per_second is not None:
        parts.append(f"{TOKENS.text(figures.tokens_per_second)} tokens/s")
    return ", ".join([*parts, f"{STEP_MEAN.text(figures.step_mean)}/step"])
