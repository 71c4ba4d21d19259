"""The figures of a training cell as text: one heading, one definition and one format each, for every table and format.

Sections, the terminal, live lines and charts take values and texts from here, so that a figure reads the same wherever
it is shown. ``docs/method.md`` lists the definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.decomposition import Decomposition
from torchscale.analysis.training.scaling import Efficiency, Grade
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.document import DASH, Column, TableValue, Tone, optional_value
from torchscale.report.text.labels import format_half_width, on_cuda
from torchscale.schema.state import State
from torchscale.util.units import format_bytes, format_percent, format_rate, format_seconds


@dataclass(frozen=True)
class Quantity:
    """A figure of a cell with figures.

    Attributes:
        heading: Of its column.
        definition: Over which steps, launches and ranks, and how they are combined.
        value: In SI units, bytes or as a share; ``None`` was not measured.
        text: A value as people read it, with its unit unless the heading has it.
    """

    heading: str
    definition: str
    value: Callable[[Figures], float | None]
    text: Callable[[float], str]

    def of(self, summary: TrainingSummary) -> TableValue:
        """The cell's value as a table shows it; – where it was not measured."""
        return DASH if summary.figures is None else optional_value(self.value(summary.figures), self.text)

    @property
    def column(self) -> Column:
        """A column of it."""
        return Column(self.heading, numeric=True)


THROUGHPUT = Quantity(
    "samples/s",
    "samples of all devices ÷ summed wall time of the batches of steps; geometric mean over launches",
    lambda figures: figures.samples_per_second,
    format_rate,
)
THROUGHPUT_PER_DEVICE = Quantity(
    "per device",
    "samples/s ÷ number of devices",
    lambda figures: figures.samples_per_second_per_device,
    format_rate,
)
TOKENS = Quantity("tokens/s", "samples/s × tokens of a sample", lambda figures: figures.tokens_per_second, format_rate)
STEP_MEAN = Quantity(
    "mean step",
    "samples of a step ÷ samples/s: the geometric mean over launches of each launch's mean step",
    lambda figures: figures.step_mean,
    format_seconds,
)
STEP_P50 = Quantity(
    "p50",
    "median over all steps of all launches, per step the slowest rank",
    lambda figures: figures.steps.p50,
    format_seconds,
)
STEP_P95 = Quantity("p95", "95th percentile of the same steps", lambda figures: figures.steps.p95, format_seconds)
STEP_P99 = Quantity("p99", "99th percentile of the same steps", lambda figures: figures.steps.p99, format_seconds)
STEP_MAXIMUM = Quantity(
    "slowest", "the longest of the same steps", lambda figures: figures.steps.maximum, format_seconds
)
UNCERTAINTY = Quantity(
    "±95 %",
    "half-width of the 95 % interval of samples/s and mean step, as a share of it: from launch to launch, or of a "
    "single launch from its batches of steps",
    lambda figures: figures.uncertainty,
    format_half_width,
)
_PEAK_ALLOCATED = Quantity(
    "peak allocated",
    "the CUDA allocator's peak; the largest over ranks and launches",
    lambda figures: figures.peak_memory_bytes,
    format_bytes,
)
_PROCESS_GROWTH = Quantity(
    "RSS growth",
    "growth of a process's resident memory from before the model was built to its peak; the largest over ranks and "
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
FORWARD = Quantity("forward", "until the loss is computed", lambda figures: figures.phases.forward, format_seconds)
BACKWARD = Quantity(
    "backward", "until the last gradient is computed", lambda figures: figures.phases.backward, format_seconds
)
EXPOSED_SYNC = Quantity(
    "exposed sync",
    "gradient and buffer synchronization that no compute hides, waiting for other ranks included",
    lambda figures: figures.phases.sync,
    format_seconds,
)
OPTIMIZER = Quantity(
    "optimizer", "clipping, step, clearing the gradients", lambda figures: figures.phases.optimizer, format_seconds
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
    UNCERTAINTY,
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
        heading: Of its column and of its layer in charts; ``+`` marks what is added to the ideal step.
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
        return TableValue(f"{format_seconds(seconds)} ({format_percent(self.share(lost))})", seconds)


LOST_PARTS = (
    LostPart("+ compute", "slower compute", lambda lost: lost.compute),
    LostPart("+ data wait", "waiting for data", lambda lost: lost.data_wait),
    LostPart("+ straggler wait", "waiting for slower ranks", lambda lost: lost.straggler_wait),
    LostPart("+ exposed communication", "exposed communication", lambda lost: lost.exposed_communication),
    LostPart("unexplained", "unexplained time", lambda lost: lost.unexplained),
)
"""With the ideal step they add up to the mean step (``docs/diagnosis.md``, The loss decomposition)."""

_VAGUE = " (± over 100 %)"
"""After an efficiency whose interval is wider than its value."""
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
    return _PEAK_ALLOCATED if on_cuda(summary) else _PROCESS_GROWTH


def memory_definition(*, on_cuda: bool) -> str:
    """What a cell's peak memory is."""
    return (_PEAK_ALLOCATED if on_cuda else _PROCESS_GROWTH).definition


def efficiency_value(summary: TrainingSummary, *, interval: bool = True) -> TableValue:
    """Scaling efficiency: – without a baseline, ``*`` where it is based on a flagged cell, with its 95 % interval if
    asked for. It has a tone only where its interval is certain of it."""
    efficiency = summary.efficiency
    if efficiency is None:
        return DASH
    if efficiency.baseline_world_size == summary.cell.world_size:
        return TableValue("baseline", efficiency.value, Tone.DIM)
    text = format_efficiency(efficiency) if interval else format_percent(efficiency.value)
    text += "*" * bool(efficiency.flags)
    return TableValue(text, efficiency.value, Tone.PLAIN if efficiency.grade is None else _GRADE_TONE[efficiency.grade])


def format_efficiency(efficiency: Efficiency) -> str:
    """``91.2 ± 2.1 %``; without the interval where there is none. Intervals are nearly symmetric where they are narrow
    enough to be shown: the wider side is the one after ±. A wider one reads ``(± over 100 %)``."""
    value = format_percent(efficiency.value)
    if efficiency.interval is None:
        return value
    if efficiency.is_vague:
        return value + _VAGUE
    low, high = efficiency.interval
    return f"{value.removesuffix(' %')} ± {format_percent(max(high - efficiency.value, efficiency.value - low))}"


def state_value(summary: TrainingSummary) -> TableValue:
    """The state: ``2 of 3 launches`` of a cell that is partly done."""
    text = launches_label(summary) if summary.state is State.PARTIAL else summary.state.value
    return TableValue(text, summary.state.value, state_tone(summary.state))


def state_tone(state: State) -> Tone:
    """What is still to run is no reason for caution."""
    return _STATE_TONE.get(state, Tone.BAD)


def launches_label(summary: TrainingSummary) -> str:
    """``2 of 3 launches``."""
    return f"{summary.launches} of {summary.planned_launches} launches"


def samples_text(figures: Figures) -> str:
    """``1,450 samples/s ±0.6 %``."""
    uncertainty = figures.uncertainty
    width = "" if uncertainty is None else f" ±{UNCERTAINTY.text(uncertainty)}"
    return f"{THROUGHPUT.text(figures.samples_per_second)} samples/s{width}"


def throughput_text(figures: Figures) -> str:
    """``1,450 samples/s, 220 ms/step ±0.6 %``, with tokens where samples have any."""
    text = f"{THROUGHPUT.text(figures.samples_per_second)} samples/s, "
    if figures.tokens_per_second is not None:
        text += f"{TOKENS.text(figures.tokens_per_second)} tokens/s, "
    text += f"{STEP_MEAN.text(figures.step_mean)}/step"
    uncertainty = figures.uncertainty
    return text if uncertainty is None else f"{text} ±{UNCERTAINTY.text(uncertainty)}"
