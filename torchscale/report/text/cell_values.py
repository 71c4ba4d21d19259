"""State, efficiency, memory and throughput of a training cell, as tables and lines show them."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import Efficiency, Grade
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.text.figures import (
    PADDING,
    PEAK_ALLOCATED,
    PROCESS_GROWTH,
    STEP_MEAN,
    STEP_RATE,
    THROUGHPUT,
    TOKENS,
)
from torchscale.report.text.quantity import Quantity
from torchscale.report.text.run_labels import on_cuda
from torchscale.report.values import DASH, TableValue, Tone
from torchscale.schema.state import State
from torchscale.util.interval_text import format_share_interval, with_interval
from torchscale.util.units import format_percent

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
    """The state: ``2 of 3 launches`` of a cell that is partly done; of a watched job how that
    ended."""
    if summary.cell.is_watched and summary.watched is not None:
        text = summary.watched.state.value
    elif summary.state is State.PARTIAL:
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
