"""Results over time as a document: what changed since when, and a chart for each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchscale.analysis.stats.change_points import FALSE_DISCOVERY_RATE, MIN_LENGTH
from torchscale.analysis.stats.series import geometric_mean
from torchscale.features.compare.history.next_commands import RunPlaces, next_commands
from torchscale.features.compare.history.records import HistoryRun
from torchscale.features.compare.history.text import (
    difference_texts,
    format_change_point,
    format_since,
    history_sentence,
    level_text,
    trend_label,
)
from torchscale.features.compare.history.trend_charts import charts_section
from torchscale.features.compare.history.trends import ChangePoint, Point, Trend
from torchscale.report.document import (
    Block,
    Bullets,
    Document,
    Headline,
    KeyFigure,
    Overview,
    Paragraph,
    QuestionAnswer,
    Section,
)
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.values import DASH, TableValue, Tone, shortened
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural

_MAX_COMMANDS = 8
"""Changes with lines to type; the terminal and JSON have those of all."""


@dataclass(frozen=True)
class HistoryReport:
    """Everything that a history shows.

    Attributes:
        runs: Oldest first.
        trends: Every series with its change points.
        threshold: A newest level that is worse by at most this share is no regression.
        left_out: A sentence on each run folder that was not added.
        places: Where the runs can be read again.
    """

    runs: tuple[HistoryRun, ...]
    trends: tuple[Trend, ...]
    threshold: float
    left_out: tuple[str, ...] = ()
    places: RunPlaces = field(default_factory=RunPlaces)

    @property
    def regressions(self) -> list[tuple[Trend, ChangePoint]]:
        """The series whose newest level is worse."""
        found = [(trend, trend.regression(self.threshold)) for trend in self.trends]
        return [(trend, change) for trend, change in found if change is not None]

    @property
    def changes(self) -> list[tuple[Trend, ChangePoint]]:
        """All change points, the newest first."""
        every = [(trend, change) for trend in self.trends for change in trend.changes]
        return sorted(every, key=lambda one: one[1].first.measured_at, reverse=True)


def history_document(report: HistoryReport) -> Document:
    """The page: an answer, change points, a chart of every series, how it is decided."""
    sections = (
        _changes_section(report),
        _series_section(report),
        charts_section(report.trends),
        _method_section(report),
    )
    runs = report.runs
    subtitle = "no runs"
    if runs:
        period = f"{runs[0].measured_at[:10]} to {runs[-1].measured_at[:10]}"
        subtitle = f"{plural(len(runs), 'run')}, {period}"
    return Document(
        title="History",
        subtitle=subtitle,
        verdict=(history_sentence(report.trends, report.threshold),),
        key_figures=(
            KeyFigure("runs", f"{len(runs):,}"),
            KeyFigure("series", f"{len(report.trends):,}"),
            KeyFigure("changes of level", f"{len(report.changes):,}"),
            KeyFigure("worse now", f"{len(report.regressions):,}"),
        ),
        sections=tuple(section for section in sections if section.blocks),
        overview=_overview(report),
        footer="Figures of each run were measured; levels, changes and intervals are computed "
        "from them. "
        "– means not measured.",
    )


def _overview(report: HistoryReport) -> Overview:
    if report.regressions:
        tone = Tone.BAD
    elif _told(report):
        tone = Tone.GOOD
    else:
        tone = Tone.CAUTION
    return Overview(
        Headline(history_sentence(report.trends, report.threshold), tone),
        (_worse_now(report), _ever_changed(report), _enough_runs(report)),
    )


def _told(report: HistoryReport) -> bool:
    """Whether a change of level could be seen in some series."""
    return any(len(trend.counted) >= 2 * MIN_LENGTH for trend in report.trends)


def _worse_now(report: HistoryReport) -> QuestionAnswer:
    answer, tone = "no", Tone.GOOD
    text = "no series has a newest level that is worse"
    if report.regressions:
        answer, tone = f"{len(report.regressions):,} series", Tone.BAD
        text = "; ".join(
            f"{trend_label(trend)}: {format_change_point(change)}"
            for trend, change in report.regressions[:2]
        )
    elif not _told(report):
        answer, text, tone = "not known", "no series has enough runs", Tone.PLAIN
    return QuestionAnswer("Worse now?", answer, shortened(text), tone, _details_anchor(report))


def _ever_changed(report: HistoryReport) -> QuestionAnswer:
    answer = "no"
    if report.changes:
        answer = plural(len(report.changes), "change")
    text = f"over {plural(len(report.runs), 'run')} and {len(report.trends):,} series"
    return QuestionAnswer("Ever changed?", answer, text, Tone.PLAIN, _details_anchor(report))


def _enough_runs(report: HistoryReport) -> QuestionAnswer:
    short = sum(len(trend.counted) < 2 * MIN_LENGTH for trend in report.trends)
    answer, tone = "yes", Tone.GOOD
    if short:
        answer, tone = f"not for {short:,} of {len(report.trends):,} series", Tone.CAUTION
    text = f"a change is found from {MIN_LENGTH} runs before and {MIN_LENGTH} after it"
    return QuestionAnswer("Enough runs?", answer, text, tone, "method")


def _details_anchor(report: HistoryReport) -> str:
    """The section of the changes; of all series where there are none."""
    if report.changes:
        return "changes"
    return "series"


def _changes_section(report: HistoryReport) -> Section:
    if not report.changes:
        return Section("Changes of level", "changes", ())
    columns: tuple[ColumnOf[tuple[Trend, ChangePoint]], ...] = (
        ColumnOf("series", lambda row: shortened(trend_label(row[0])), identifies=True, prose=True),
        ColumnOf(
            "since (UTC)", lambda row: TableValue(format_since(row[1]), row[1].first.measured_at)
        ),
        ColumnOf("change (95 % interval)", lambda row: _change_value(row[1]), numeric=True),
        ColumnOf("verdict", lambda row: "worse" if row[1].worse else "better"),
        ColumnOf("runs before | after", lambda row: "{} | {}".format(*row[1].runs), numeric=True),
        ColumnOf("between", lambda row: _ends(row[1]), prose=True),
        ColumnOf(
            "what changed between these two",
            lambda row: "; ".join(difference_texts(row[1])) or "nothing that is recorded",
            prose=True,
        ),
    )
    table = table_of("Newest first", columns, report.changes, searchable=True)
    text = (
        "What changed between the two runs is a candidate cause, not a proven one: to be sure, "
        "change one of them back, measure, and compare."
    )
    blocks: list[Block] = [table, Paragraph(text)]
    commands = [
        command
        for _, change in report.changes[:_MAX_COMMANDS]
        for command in next_commands(change, report.places)
    ]
    if commands:
        blocks.append(Paragraph("What it is that is slower, and since which package:"))
        blocks.append(Paragraph("\n".join(dict.fromkeys(commands)), code=True))
    return Section("Changes of level", "changes", tuple(blocks))


def _change_value(change: ChangePoint | None) -> TableValue:
    if change is None:
        return DASH
    tone = Tone.GOOD
    if change.worse:
        tone = Tone.BAD
    return TableValue(format_change_point(change), change.ratio.value - 1, tone)


def _ends(change: ChangePoint) -> str:
    return shortened(f"{change.last.run.name} → {change.first.run.name}")


def _series_section(report: HistoryReport) -> Section:
    if not report.trends:
        return Section("Series", "series", ())
    columns: tuple[ColumnOf[Trend], ...] = (
        ColumnOf("series", lambda one: shortened(trend_label(one)), identifies=True, prose=True),
        ColumnOf("device", lambda one: shortened(one.device), optional=True, prose=True),
        ColumnOf("newest", lambda one: _level(one, one.points[-1:]), numeric=True),
        ColumnOf("level", lambda one: _level(one, one.segments[-1]), numeric=True),
        ColumnOf("since (UTC)", _since),
        ColumnOf("last change", lambda one: _change_value(one.newest_change), numeric=True),
        ColumnOf("runs", lambda one: len(one.counted), "{:,}".format),
        ColumnOf("left out", _left_out, optional=True, shown=any(map(_reasons, report.trends))),
    )
    table = table_of("All series", columns, report.trends, searchable=True)
    return Section("Series", "series", (table.compact(),))


def _reasons(trend: Trend) -> Counter[str]:
    """Why runs do not count, each with their number."""
    return Counter(point.left_out for point in trend.points if point.left_out)


def _left_out(trend: Trend) -> TableValue:
    """``3 runs: 2 contended and 1 crashed``; a dash where every run counts."""
    reasons = _reasons(trend)
    if not reasons:
        return DASH
    count = sum(reasons.values())
    named = [f"{number:,} {reason}" for reason, number in reasons.most_common()]
    if len(reasons) == 1:
        named = list(reasons)
    return TableValue(shortened(f"{plural(count, 'run')}: {listed(named)}"), count)


def _level(trend: Trend, points: Sequence[Point]) -> TableValue:
    if not points:
        return DASH
    mean = geometric_mean([point.figure.level for point in points])
    return TableValue(level_text(trend, mean), mean)


def _since(trend: Trend) -> TableValue:
    segment = trend.segments[-1]
    first = segment[0].measured_at if segment else ""
    return TableValue(first[:16].replace("T", " "), first)


def _method_section(report: HistoryReport) -> Section:
    items = (
        "A change point is the most likely place of a change of level. A permutation test decides "
        "whether it is one: "
        f"at most {format_percent(FALSE_DISCOVERY_RATE, 0)} of all changes are expected to be "
        "false.",
        f"At least {MIN_LENGTH} runs on either side are needed. Small changes need more: see "
        "torchscale docs history.",
        "The interval of a change comes from the scatter between the runs of the two levels "
        "(Welch). The place of the change was chosen by the data, so a small change looks somewhat "
        "larger than it is.",
        "Worse now: the newest change is for the worse by more than "
        f"{format_percent(report.threshold)}.",
        "A series is one workload on one device name. Host, driver, software and settings may "
        "change within it.",
        *report.left_out,
    )
    return Section("Method", "method", (Bullets(tuple(map(shortened, items))),))
