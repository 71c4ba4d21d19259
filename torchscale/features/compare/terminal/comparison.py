"""A comparison on the terminal: the verdicts, what decides, why, and in what the sides differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from torchscale.features.compare.sections.document import ComparisonReport, comparison_document
from torchscale.features.compare.text.comparison import BRACKETS, comparison_label, format_scores
from torchscale.features.compare.text.verdict import format_session_noise
from torchscale.report.document import Bullets, Section, shortened
from torchscale.report.formats.console import print_document
from torchscale.util.words import capped, listed, plural

_MAX_PROBLEMS = 5
"""Damaged files: the first ones tell what is wrong; ``report`` of the run lists all."""
_MAX_NAMED = 3
"""Cells with a warning that are named; HTML and JSON have all."""


def print_comparison(comparison: ComparisonReport, console: Console) -> None:
    """Print the verdict, the change of each cell, and what differs between the sides; this first
    where cells that differ were asked to be compared."""
    brief, whole = (comparison_document(comparison, brief=is_brief) for is_brief in (True, False))
    remarks = Section("Remarks", "remarks", (Bullets(tuple(map(shortened, _remarks(comparison)))),))
    shown = sorted(
        (*brief.sections, remarks),
        key=lambda one: comparison.matched_by_name and one.anchor != "differences",
    )
    anchors = [section.anchor for section in shown]
    left = [section for section in whole.sections if section.anchor not in anchors]
    document = replace(brief, overview=None, sections=(*shown, *left))
    print_document(document, console, anchors=anchors, elsewhere="--format html has all of it.")


def _remarks(comparison: ComparisonReport) -> Iterator[str]:
    """What the verdicts rest on, and what they leave out."""
    for pair in comparison.pairs:
        yield from format_scores(pair)
        decided = pair.decided_by(comparison.metrics)
        if decided:
            yield format_session_noise([change for _, change in decided])
        if any(change.conditions for _, change in decided):
            yield BRACKETS
        flagged = [comparison_label(cell) for cell, _ in decided if cell.flags]
        if flagged:
            named = listed(capped(flagged, _MAX_NAMED))
            yield f"Measured with a warning on one side (see the report of that side): {named}."
    yield from _without_why(comparison)
    sides = (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
    problems = [problem for side in sides for problem in side.problems]
    yield from (f"Skipped: {problem}" for problem in problems[:_MAX_PROBLEMS])
    if len(problems) > _MAX_PROBLEMS:
        yield f"… and {plural(len(problems) - _MAX_PROBLEMS, 'more file')} skipped."


def _without_why(comparison: ComparisonReport) -> Iterator[str]:
    if any(not (one.cells or one.without or one.recordings) for one in comparison.why):
        yield (
            "No training cell was compared, so there is nothing to explain (--match "
            "model,global_batch,devices compares cells that differ otherwise)."
        )
