"""What limits a run, in one line."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import QuestionAnswer
from torchscale.report.sections.first_screen.causes import CauseGroup, cost_text
from torchscale.report.sections.first_screen.recorded import COSTLY
from torchscale.report.values import Tone, caution_where, shortened
from torchscale.util.units import format_whole_percent
from torchscale.util.words import format_range, listed, plural

MOSTLY_IDLE = 0.5
"""Chosen: a GPU that computes half of the time can be twice as fast. Tiny models on an H200 were at
0.11 to 0.13, where the batch size changed nothing in the length of a step."""


def limited_by(summary: RunSummary, groups: Sequence[CauseGroup]) -> QuestionAnswer | None:
    """Limited by? The costliest cause; where no rule found one, GPUs that idle for most of the time;
    ``None`` where there is nothing to answer by."""
    if groups:
        first, *others = groups
        text = cost_text(first) or "cost unknown"
        text += f", in {plural(len(first.cells), 'cell')}"
        if others:
            text += f"; then {listed([group.title.lower() for group in others[:2]])}"
        tone = caution_where(first.largest >= COSTLY)
        return QuestionAnswer(
            "Limited by?", first.title.lower(), shortened(text), tone, "diagnosis"
        )
    busy = [share for cell in summary.measured if (share := _busy(cell)) is not None]
    idle = [share for share in busy if share < MOSTLY_IDLE]
    if idle:
        shares = format_range(idle, format_whole_percent)
        text = (
            f"in {plural(len(idle), 'cell')} GPUs were busy {shares} of the time, and no rule "
            "found why; often the host hands out work too slowly: try larger batches, "
            "torch.compile or CUDA graphs"
        )
        return QuestionAnswer("Limited by?", "idle GPUs", text, Tone.CAUTION, "telemetry")
    if any(cell.diagnosis is not None for cell in summary.measured):
        return QuestionAnswer(
            "Limited by?", "nothing found", "no rule found a bottleneck", Tone.PLAIN, "diagnosis"
        )
    return None


def _busy(cell: TrainingSummary) -> float | None:
    """The mean share of the measured time in which a GPU of the cell ran a kernel."""
    figures = cell.figures
    if figures is None:
        return None
    machines = [node.telemetry for node in figures.nodes] or [figures.telemetry]
    known = [gpu.busy for use in machines if use for gpu in use.gpus if gpu.busy is not None]
    return statistics.fmean(known) if known else None
