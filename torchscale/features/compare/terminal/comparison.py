"""A comparison on the terminal: the verdicts, what decides, why, and in what the sides differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from torchscale.features.compare.sections.cells import shown_changes
from torchscale.features.compare.sections.document import (
    ComparisonReport,
    brief_sections,
    comparison_document,
)
from torchscale.features.compare.text.comparison import UNDISTURBED_LEGEND, format_scores
from torchscale.features.compare.text.verdict import format_session_noise
from torchscale.report.document import Bullets, Section
from torchscale.report.formats.console import MAX_ROWS, print_document
from torchscale.report.values import only_if, shortened
from torchscale.util.words import plural

_MAX_PROBLEMS = 5
"""Damaged files: the first ones tell what is wrong; ``report`` of the run lists all."""


def print_comparison(comparison: ComparisonReport, console: Console) -> None:
    """Print the verdict, the change of each cell, and what differs between the sides; this first
    where cells that differ were asked to be compared."""
    brief, whole = (comparison_document(comparison, brief=is_brief) for is_brief in (True, False))
    found = tuple(map(shortened, _remarks(comparison)))
    remarks = Section("Remarks", "remarks", only_if(found, Bullets(found)))
    shown = sorted(
        (*brief_sections(comparison, MAX_ROWS, warnings=True), remarks),
        key=lambda one: comparison.matched_by_name and one.anchor != "differences",
    )
    anchors = [section.anchor for section in shown]
    left = [section for section in whole.sections if section.anchor not in anchors]
    document = replace(brief, overview=None, sections=(*shown, *left))
    print_document(document, console, anchors=anchors, elsewhere="HTML has them: --format html")


def _remarks(comparison: ComparisonReport) -> Iterator[str]:
    """What the verdicts rest on, and what they leave out."""
    for pair in comparison.pairs:
        yield from format_scores(pair)
        decided = pair.decided_by(comparison.metrics)
        if decided:
            yield format_session_noise([change for _, change in decided])
        printed = shown_changes(pair, comparison.metrics, with_cost=bool(comparison.prices))
        if any(change.conditions for _, change in printed):
            yield UNDISTURBED_LEGEND
        if any(cell.flags for cell, _ in printed):
            yield "Warnings are of one side; the report of that side says what they mean."
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
