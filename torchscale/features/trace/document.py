"""The report of one recording outside a benchmark."""

from __future__ import annotations

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.report.document import Bullets, Document, LostTime, Overview, Paragraph, Section
from torchscale.report.profile_blocks import operation_tables, profile_blocks
from torchscale.report.sections.diagnosis import abstention_blocks
from torchscale.report.sections.first_screen.recorded import (
    first_timeline,
    recorded_headline,
    recorded_statuses,
)
from torchscale.report.text.findings import confidence_text, cost_words, finding_title
from torchscale.report.text.profile import is_of_devices
from torchscale.report.values import shortened
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Finding
from torchscale.util.words import plural, sentence

_MAX_CAUSES = 3
"""Maximum number of causes on the first screen, side by side."""


def profile_document(analysis: ProfileAnalysis, name: str) -> Document:
    """The report of a recording outside a benchmark: the user's own training, or a trace file."""
    blocks = [*profile_blocks(analysis, shortened(name)), *operation_tables(analysis)]
    blocks += abstention_blocks(analysis.abstentions, on_device=is_of_devices(analysis))
    notes = tuple(shortened(note) for note in analysis.notes)
    sections = [Section("Recording", "recording", tuple(blocks))]
    if notes:
        sections.append(Section("Notes", "notes", (Bullets(notes),)))
    where = (
        "How recordings are read: torchscale docs profile. How causes are found: torchscale docs "
        "diagnosis."
    )
    sections.append(Section("Method", "method", (Paragraph(where),)))
    return Document(
        title=f"Training profile: {shortened(name)}",
        subtitle=f"{plural(analysis.world_size, 'rank')} · {analysis.recorder}",
        verdict=(),
        key_figures=(),
        sections=tuple(sections),
        overview=profile_overview(analysis, "recording"),
    )


def profile_overview(analysis: ProfileAnalysis, anchor: str) -> Overview:
    """The first screen of one recording of a program of the user's own."""
    findings = sorted(analysis.findings, key=lambda finding: -finding.cost_percent)
    costly = [item for item in findings if item.cost_percent >= COST_FLOOR * 100]
    return Overview(
        headline=recorded_headline([analysis]),
        statuses=recorded_statuses([analysis], anchor),
        chart=first_timeline(analysis),
        causes=tuple(_cause(item) for item in costly[:_MAX_CAUSES]),
    )


def _cause(finding: Finding) -> LostTime:
    return LostTime(
        title=finding_title(finding),
        cost=cost_words(finding),
        cells="",
        text=shortened(f"{sentence(finding.summary)} Confidence: {confidence_text(finding)}."),
        advice=shortened(sentence(finding.advice)),
    )
