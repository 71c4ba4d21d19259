"""A comparison as a document: what changed, by how much, how sure, and in what else the sides
differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.analysis.explanation import ExplainedPair
from torchscale.features.compare.analysis.operators import ComparedRecording
from torchscale.features.compare.analysis.pair import CellOutcome, Pair
from torchscale.features.compare.sections.cells import (
    MAX_BRIEF_ROWS,
    compared_cells_section,
    deciding_cells_section,
)
from torchscale.features.compare.sections.conditions import (
    comparison_method_section,
    differences_section,
)
from torchscale.features.compare.sections.overall import change_charts, overall_section
from torchscale.features.compare.sections.overview import comparison_overview
from torchscale.features.compare.sections.ranking import (
    RankedSide,
    best_sentence,
    ranked_sides,
    ranking_section,
)
from torchscale.features.compare.sections.why import recording_blocks, why_section
from torchscale.features.compare.text.comparison import (
    format_interval,
    format_ratio_change,
    format_verdict,
)
from torchscale.features.compare.text.gate import GATE, gate_sentences
from torchscale.features.compare.text.result import METRIC_LABELS, measured_at
from torchscale.features.compare.text.verdict import pair_verdict
from torchscale.report.document import (
    Document,
    KeyFigure,
    Overview,
    Paragraph,
    QuestionAnswer,
    Section,
)
from torchscale.report.values import Tone, only_if, shortened
from torchscale.util.words import plural

_BRIEF_DIFFERENCES = 12
"""Half a screen."""


@dataclass(frozen=True)
class ComparisonReport:
    """Everything that a comparison shows.

    Attributes:
        pairs: Each other side against the reference.
        differences: Differences of cells that are compared, machines, software and settings, over
            all sides.
        names: Names of the sides, the reference first.
        metrics: What decides; empty for the headline of each cell.
        threshold: A change up to this share counts as no change.
        prices: Prices of a device and hour on each side; empty where none was given.
        matched_by_name: Whether cells that differ were asked to be compared, so that what differs
            comes first.
        left_out: Sentences on sources that are not compared.
        why: Each pair explained, where that was asked for.
        calibrated: Whether calibrated thresholds decide where the reference has them.
    """

    pairs: tuple[Pair, ...]
    differences: tuple[SideDifference, ...]
    names: tuple[str, ...]
    metrics: tuple[Metric, ...] = ()
    threshold: float = 0.02
    prices: tuple[float, ...] = field(default=())
    matched_by_name: bool = False
    left_out: tuple[str, ...] = ()
    why: tuple[ExplainedPair, ...] = ()
    calibrated: bool = True

    @property
    def ranking(self) -> list[RankedSide]:
        """The sides by samples per dollar; empty without prices."""
        return ranked_sides(self.pairs, self.names, self.prices)


def comparison_document(comparison: ComparisonReport, *, brief: bool = False) -> Document:
    """A comparison as a report for people; a ``brief`` one, for a pull request, has the verdicts
    and what decides."""
    return Document(
        title=f"Comparison: {' and '.join(shortened(name) for name in comparison.names[1:])} "
        f"against {shortened(comparison.names[0])}",
        subtitle=_subtitle(comparison),
        verdict=(
            *([best_sentence(comparison.ranking)] if comparison.ranking else []),
            *(" ".join(pair_verdict(pair, comparison.metrics)) for pair in comparison.pairs),
            *gates(comparison),
            *map(shortened, comparison.left_out),
        ),
        key_figures=() if brief or len(comparison.pairs) == 1 else _key_figures(comparison),
        overview=_overview(comparison, brief=brief),
        sections=brief_sections(comparison) if brief else comparison_sections(comparison),
        footer="Figures of each side were measured; changes, intervals, p-values and scores are "
        "computed from them. "
        "– means not measured.",
    )


def gates(comparison: ComparisonReport) -> Iterator[str]:
    """By which thresholds each side was judged, where the reference is calibrated."""
    texts = (
        text
        for pair in comparison.pairs
        for text in gate_sentences(pair, comparison.metrics, calibrated=comparison.calibrated)
    )
    yield from dict.fromkeys(texts)


def recordings_document(recording: ComparedRecording, names: tuple[str, str]) -> Document:
    """Two recordings on their own as a report for people."""
    headline, *blocks = recording_blocks(recording, (shortened(names[0]), shortened(names[1])))
    assert isinstance(headline, Paragraph)  # noqa: S101 - the first block; tells the type checker
    return Document(
        title=f"Recordings: {shortened(recording.label)}",
        subtitle=headline.text,
        verdict=(),
        key_figures=(),
        sections=(Section("Operators", "operators", tuple(blocks)),),
        footer="Times are of recorded steps, with the profiler at work.",
    )


def _overview(comparison: ComparisonReport, *, brief: bool) -> Overview | None:
    """The first screen of a comparison of two sides; ``None`` for more of them, which have a
    paragraph and key figures each."""
    if len(comparison.pairs) > 1:
        return None
    (pair,) = comparison.pairs
    if not brief:
        charts = change_charts(comparison.pairs, comparison.metrics, comparison.threshold)
    else:
        charts = []
    overview = comparison_overview(
        pair, comparison.metrics, comparison.differences, charts[0] if charts else None
    )
    gate = [shortened(text.removeprefix(GATE)) for text in gates(comparison)]
    if not gate:
        return overview
    kind = "calibrated" if comparison.calibrated else "not calibrated"
    row = QuestionAnswer("Gate?", kind, " ".join(gate), Tone.PLAIN, "method")
    return replace(overview, statuses=(*overview.statuses, row))


def comparison_sections(comparison: ComparisonReport) -> tuple[Section, ...]:
    """The sections of a comparison, without empty ones."""
    differing = differences_section(comparison.differences, comparison.names)
    sections = (
        ranking_section(comparison.ranking, comparison.names[0]),
        *only_if(comparison.matched_by_name, differing),
        overall_section(
            comparison.pairs, comparison.names, comparison.metrics, comparison.threshold
        ),
        why_section(comparison.why),
        compared_cells_section(comparison.pairs),
        *only_if(not comparison.matched_by_name, differing),
        comparison_method_section(
            comparison.pairs, comparison.names, comparison.threshold, comparison.prices
        ),
    )
    return tuple(section for section in sections if section.blocks)


def brief_sections(
    comparison: ComparisonReport, limit: int = MAX_BRIEF_ROWS, *, warnings: bool = False
) -> tuple[Section, ...]:
    """What decides, in tables of at most ``limit`` rows, why, and what differs."""
    sections = (
        ranking_section(comparison.ranking, comparison.names[0]),
        deciding_cells_section(
            comparison.pairs,
            comparison.metrics,
            with_cost=bool(comparison.prices),
            limit=limit,
            warnings=warnings,
        ),
        why_section(comparison.why, brief=True),
        differences_section(comparison.differences, comparison.names, _BRIEF_DIFFERENCES),
    )
    return tuple(section for section in sections if section.blocks)


def _subtitle(comparison: ComparisonReport) -> str:
    sides = (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
    return " · ".join(
        shortened(f"{side.name}: measured {measured or 'at an unknown time'}")
        for side, measured in zip(sides, measured_at(sides), strict=True)
    )


def _key_figures(comparison: ComparisonReport) -> tuple[KeyFigure, ...]:
    """Numbers are large only where there is a verdict on them; else the verdict is."""
    figures = []
    for pair in comparison.pairs:
        name = shortened(pair.other.name)
        for overall in pair.overall_by(comparison.metrics)[:1]:
            change = f"{format_ratio_change(overall.ratio)}, {format_interval(overall.ratio)}"
            cells = plural(overall.cells, "cell")
            if overall.verdict.decided:
                value, note = (
                    format_ratio_change(overall.ratio),
                    f"{format_interval(overall.ratio)} over {cells}",
                )
                note += f": {overall.verdict.value}"
            else:
                value, note = format_verdict(overall), f"{change} over {cells}"
            figures.append(KeyFigure(f"{METRIC_LABELS[overall.metric]}, {name}", value, note))
        figures.append(_regressions_figure(pair, comparison.metrics, name))
        if pair.score is not None and pair.score.certain:
            note = f"speed × {pair.score.measured} of {plural(pair.score.of, 'cell')}"
            figures.append(KeyFigure(f"score, {name}", f"{pair.score.value:.1f}", note))
    return tuple(figures)


def _regressions_figure(pair: Pair, metrics: Sequence[Metric], name: str) -> KeyFigure:
    decided = pair.decided_by(metrics)
    counts = [
        (verdict, sum(change.verdict is verdict for _, change in decided))
        for verdict in ChangeVerdict
    ]
    notes = [f"{count} {verdict.value}" for verdict, count in counts if count]
    lost = sum(cell.outcome is CellOutcome.LOST for cell in pair.cells)
    missing = len(pair.missing(metrics))
    if lost:
        notes.append(f"{lost} lost")
    if missing:
        notes.append(f"{missing} not or partly measured")
    regressions = len(pair.regressions(metrics))
    unclear = pair.may_hide_loss(metrics) or not decided
    if unclear and not regressions:
        value = ChangeVerdict.UNCLEAR.value
    else:
        value = plural(regressions, "cell")
    return KeyFigure(f"worse or lost, {name}", value, ", ".join(notes))
