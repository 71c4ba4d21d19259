"""A comparison as a document: what changed, by how much, how sure, and in what else the sides differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchscale.analysis.comparison.compare import Outcome, Pair, Verdict
from torchscale.analysis.comparison.matching import Difference
from torchscale.config.choices import Metric
from torchscale.report.document import (
    Document,
    KeyFigure,
    Section,
    shortened,
)
from torchscale.report.sections.comparison_cells import compared_cells_section
from torchscale.report.sections.comparison_conditions import comparison_method_section, differences_section
from torchscale.report.sections.comparison_overall import overall_section
from torchscale.report.text.comparison import (
    format_interval,
    format_ratio_change,
    measured_days,
    pair_verdict,
)
from torchscale.report.text.labels import plural


@dataclass(frozen=True)
class ComparisonReport:
    """Everything that a comparison shows.

    Attributes:
        pairs: Each other side against the reference.
        differences: Of machines, software and settings, over all sides.
        names: Of the sides, the reference first.
        metrics: What decides; empty for the headline of each cell.
        threshold: A change up to this share counts as no change.
        prices: Of a device and hour on each side; empty where none was given.
    """

    pairs: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    names: tuple[str, ...]
    metrics: tuple[Metric, ...] = ()
    threshold: float = 0.02
    prices: tuple[float, ...] = field(default=())


def comparison_document(comparison: ComparisonReport) -> Document:
    """A comparison as a report for people."""
    return Document(
        title=f"Comparison: {' and '.join(shortened(name) for name in comparison.names[1:])} against "
        f"{shortened(comparison.names[0])}",
        subtitle=_subtitle(comparison),
        verdict=tuple(" ".join(pair_verdict(pair, comparison.metrics)) for pair in comparison.pairs),
        key_figures=_key_figures(comparison),
        sections=comparison_sections(comparison),
    )


def comparison_sections(comparison: ComparisonReport) -> tuple[Section, ...]:
    """The sections of a comparison, without empty ones."""
    sections = (
        overall_section(comparison.pairs, comparison.names, comparison.metrics, comparison.threshold),
        compared_cells_section(comparison.pairs),
        differences_section(comparison.differences, comparison.names),
        comparison_method_section(comparison.names, comparison.threshold, comparison.prices),
    )
    return tuple(section for section in sections if section.blocks)


def _subtitle(comparison: ComparisonReport) -> str:
    return " · ".join(
        shortened(f"{side.name}: measured {measured_days(side) or 'at an unknown time'}")
        for side in (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
    )


def _key_figures(comparison: ComparisonReport) -> tuple[KeyFigure, ...]:
    figures = []
    for pair in comparison.pairs:
        name = shortened(pair.other.name)
        speed = next((one for one in pair.overall if one.metric is Metric.THROUGHPUT), None)
        if speed is not None:
            note = f"{format_interval(speed.ratio)} over {plural(speed.cells, 'cell')}: {speed.verdict.value}"
            figures.append(KeyFigure(f"throughput, {name}", format_ratio_change(speed.ratio), note))
        decided = pair.decided_by(comparison.metrics)
        counts = [(verdict, sum(change.verdict is verdict for _, change in decided)) for verdict in Verdict]
        verdict_counts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
        lost = sum(cell.outcome is Outcome.LOST for cell in pair.cells)
        value = plural(len(pair.regressions(comparison.metrics)), "cell")
        figures.append(
            KeyFigure(f"worse or lost, {name}", value, ", ".join([verdict_counts, *([f"{lost} lost"] if lost else [])]))
        )
        if pair.score is not None:
            note = f"speed × {pair.score.measured} of {plural(pair.score.of, 'cell')}"
            figures.append(KeyFigure(f"score, {name}", f"{pair.score.value:.1f}", note))
    return tuple(figures)
