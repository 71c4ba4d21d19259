"""What limits a run, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import QuestionAnswer
from torchscale.report.sections.first_screen.causes import CauseGroup, cost_text
from torchscale.report.sections.first_screen.recorded import COSTLY
from torchscale.report.values import Tone, caution_where, shortened
from torchscale.util.words import listed, plural, within_sentence


def limited_by(summary: RunSummary, groups: Sequence[CauseGroup]) -> QuestionAnswer | None:
    """Limited by? The costliest cause; ``None`` where there is nothing to answer by."""
    if groups:
        first, *others = groups
        text = cost_text(first) or "cost unknown"
        text += f", in {plural(len(first.cells), 'cell')}"
        if others:
            text += f"; then {listed([within_sentence(group.title) for group in others[:2]])}"
        tone = caution_where(first.largest >= COSTLY)
        return QuestionAnswer(
            "Limited by?", within_sentence(first.title), shortened(text), tone, "diagnosis"
        )
    if any(cell.diagnosis is not None for cell in summary.measured):
        return QuestionAnswer(
            "Limited by?", "nothing found", "no rule found a bottleneck", Tone.PLAIN, "diagnosis"
        )
    return None
