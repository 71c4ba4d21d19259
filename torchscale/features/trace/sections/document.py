"""The report of one recording outside a benchmark."""

from __future__ import annotations

from torchscale.features.trace.sections.overview import profile_overview
from torchscale.features.trace.sections.section import operation_tables, profile_blocks
from torchscale.report.document import Bullets, Document, Paragraph, Section, shortened
from torchscale.report.sections.diagnosis import abstention_blocks
from torchscale.report.text.words import plural
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Diagnosis


def profile_document(analysis: ProfileAnalysis, name: str) -> Document:
    """The report of a recording outside a benchmark: the user's own training, or a trace file."""
    blocks = [*profile_blocks(analysis, shortened(name)), *operation_tables(analysis)]
    blocks += abstention_blocks(Diagnosis(abstentions=analysis.abstentions))
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
