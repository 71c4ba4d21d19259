"""A recording as blocks of a document: the sync stall time, the findings, where each rank's time
went, the longest step as a timeline."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.report.charts import TimelineChart, TimeSpan, chart_name
from torchscale.report.document import Block, Bullets, ChartGrid, Paragraph
from torchscale.report.table import Column, ColumnOf, Table, table_of
from torchscale.report.text.findings import finding_text
from torchscale.report.text.profile import (
    RANK_HEADINGS,
    WHAT_IF_HEADINGS,
    rank_columns,
    rank_shares,
    shown_predictions,
    stall_line,
    what_if_line,
)
from torchscale.report.text.rank_table import distributions, hidden_line, shown_ranks
from torchscale.report.values import DASH, TableValue, optional_value, shortened, text_value
from torchscale.schema.profiles.analysis import (
    CollectiveSummary,
    KernelSummary,
    ProfileAnalysis,
    RankBreakdown,
)
from torchscale.schema.profiles.finding import Finding
from torchscale.util.units import format_bytes, format_percent, format_seconds
from torchscale.util.words import sentence

_MAX_ROWS = 20
"""Operations are sorted by time; further rows take a negligible share."""
_TIMELINE_KINDS = {
    "compute": "compute",
    "wait": "waiting for ranks",
    "transfer": "transfer",
    "input": "data wait",
}


_EXCESS_KINDS = (
    (5, "5 to 15 % longer"),
    (15, "15 to 50 % longer"),
    (50, "50 % longer and more"),
)
"""From how many percent on a step counts as longer, and what it is called. Below 5 % steps scatter
by themselves (docs/diagnosis.md)."""


def profile_blocks(
    analysis: ProfileAnalysis, title: str, advised: set[str] | None = None
) -> list[Block]:
    """The blocks of one recording: sync stall time, findings, timeline and time by rank. Advice
    that is in ``advised`` was given before and is left out; what is given here is added."""
    if advised is None:
        advised = set()
    sentences = [f"{title}: {stall_line(analysis)}, recorded with {analysis.recorder}."]
    if analysis.sync_stall_percent is not None:
        sentences.append(
            "That is the mean over ranks; the table has the stall of each. A cost is the time by "
            "which the step would be shorter, and the same wherever the cause is named."
        )
    if analysis.window.reasons:
        sentences.append(f"Low confidence: {'; '.join(analysis.window.reasons)}.")
    blocks: list[Block] = [Paragraph(shortened(" ".join(sentences)))]
    if analysis.findings:
        blocks.append(Bullets(tuple(_finding_line(item, advised) for item in analysis.findings)))
    else:
        blocks.append(Paragraph("No bottleneck found."))
    chart = timeline_chart(analysis, title)
    if chart is not None:
        blocks.append(ChartGrid((chart,), wide=True))
    excess = excess_chart(analysis, title)
    if excess is not None:
        blocks.append(ChartGrid((excess,), wide=True))
    return [*blocks, *rank_tables(analysis, title), *prediction_tables(analysis, title)]


def rank_tables(analysis: ProfileAnalysis, title: str) -> list[Table]:
    """Where each rank's time went; of very many ranks their distribution first."""
    places = rank_columns(analysis.per_rank)
    columns = tuple(Column(RANK_HEADINGS[place], True) for place in places)
    rows = tuple(_rank_row(rank, places) for rank in shown_ranks(analysis.per_rank))
    what = "Where the time goes, share of each rank's window"
    hidden = hidden_line(analysis.per_rank)
    tables = []
    if hidden:
        tables.append(_distribution_table(analysis.per_rank, title))
        what = f"{what} ({hidden})"
    return [*tables, Table(_caption(what, title), columns, rows)]


def _caption(what: str, title: str) -> str:
    """``what: title``; of a document that is about one recording ``what`` alone."""
    return f"{what}: {title}" if title else what


def prediction_tables(analysis: ProfileAnalysis, title: str) -> list[Table]:
    """What the step would be without each of its faults; nothing where there is nothing to gain."""
    what_if = analysis.what_if
    if what_if is None or what_if.refused is not None:
        return []
    rows = tuple(
        (
            TableValue(shortened(row.label)),
            TableValue(format_seconds(row.step_seconds), row.step_seconds),
            TableValue(format_percent(row.gain_percent / 100), row.gain_percent),
            text_value(row.assumption),
        )
        for row in shown_predictions(what_if)
    )
    if not rows:
        return []
    numeric = [heading.startswith("predicted") for heading in WHAT_IF_HEADINGS]
    columns = tuple(
        Column(name, number, prose=not number)
        for name, number in zip(WHAT_IF_HEADINGS, numeric, strict=True)
    )
    return [Table(_caption(what_if_line(what_if), title), columns, rows)]


def _finding_line(finding: Finding, given: set[str]) -> str:
    advice = ""
    if finding.advice not in given:
        advice = f" {sentence(finding.advice)}"
    given.add(finding.advice)
    return shortened(f"{finding_text(finding)}.{advice}")


def operation_tables(analysis: ProfileAnalysis) -> tuple[Table, ...]:
    return tuple(
        table
        for table in (collectives_table(analysis), kernels_table(analysis))
        if table is not None
    )


def collectives_table(analysis: ProfileAnalysis) -> Table | None:
    """Operations with their waits; ``None`` without any."""
    if not analysis.collectives:
        return None
    columns: tuple[ColumnOf[CollectiveSummary], ...] = (
        ColumnOf("operation", lambda one: shortened(one.op)),
        ColumnOf("size", lambda one: one.payload_bytes, format_bytes),
        ColumnOf("count", lambda one: one.count, "{:,}".format),
        ColumnOf("time", lambda one: one.mean_seconds, format_seconds),
        ColumnOf("wait", lambda one: one.wait_seconds, format_seconds),
        ColumnOf("transfer", lambda one: one.transfer_seconds, format_seconds),
        ColumnOf("last", _last, numeric=True),
    )
    return table_of("Collectives, mean over ranks", columns, analysis.collectives[:_MAX_ROWS])


def _last(item: CollectiveSummary) -> TableValue:
    if item.last_rank is None or item.last_percent is None:
        return DASH
    share = format_percent(item.last_percent / 100, 0)
    return TableValue(f"rank {item.last_rank} ({share})", item.last_percent)


def kernels_table(analysis: ProfileAnalysis) -> Table | None:
    """Kernels or operators by their time; ``None`` without any."""
    if not analysis.kernels:
        return None
    columns: tuple[ColumnOf[KernelSummary], ...] = (
        ColumnOf("kernel or operator", lambda one: shortened(one.name), prose=True),
        ColumnOf("count", lambda one: one.count, "{:,}".format),
        ColumnOf("time", lambda one: one.seconds, format_seconds),
        ColumnOf("share", lambda one: one.percent_of_compute, lambda of: format_percent(of / 100)),
    )
    caption = "Kernels or operators by total time, summed over ranks"
    return table_of(caption, columns, analysis.kernels)


def _distribution_table(ranks: Sequence[RankBreakdown], title: str) -> Table:
    """How the shares of very many ranks are distributed."""
    places = rank_columns(ranks)[1:]
    rows = tuple(
        (
            TableValue(line.label),
            *(optional_value(line.shares[place - 1], format_percent) for place in places),
        )
        for line in distributions(ranks)
    )
    columns = (
        Column("of all ranks"),
        *(Column(RANK_HEADINGS[place], True) for place in places),
    )
    return Table(_caption(f"Shares of {len(ranks):,} ranks' windows", title), columns, rows)


def _rank_row(rank: RankBreakdown, places: Sequence[int]) -> tuple[TableValue, ...]:
    shares = rank_shares(rank)
    values = (optional_value(shares[place - 1], format_percent) for place in places[1:])
    return (TableValue(str(rank.rank), rank.rank), *values)


def excess_chart(analysis: ProfileAnalysis, title: str) -> TimelineChart | None:
    """Ranks by steps: where one computes longer than ranks of equal work; ``None`` for few ranks, or
    where none does."""
    excess = analysis.step_excess
    if excess is None:
        return None
    kinds = []
    bounds = [*(low for low, _ in _EXCESS_KINDS[1:]), None]
    for (low, words), high in zip(_EXCESS_KINDS, bounds, strict=True):
        cells = tuple(
            TimeSpan(row, float(column), column + 1.0)
            for row, percents in enumerate(excess.percent)
            for column, percent in enumerate(percents)
            if percent >= low and (high is None or percent < high)
        )
        if cells:
            kinds.append((words, cells))
    if not kinds:
        return None
    of = f"{excess.steps[0]} to {excess.steps[-1]}"
    return TimelineChart(
        name=chart_name("step-excess", title),
        title=f"{title}: compute beyond the median, by rank and step",
        summary=f"Where {len(excess.ranks)} of {analysis.world_size:,} ranks compute longer than the "
        f"median of ranks of equal work, in {len(excess.steps)} parts of steps {of}.",
        x_label=f"parts of steps {of}",
        rows=tuple(f"rank {rank}" for rank in excess.ranks),
        kinds=tuple(kinds),
    )


def timeline_chart(analysis: ProfileAnalysis, title: str) -> TimelineChart | None:
    """The activity of each rank in the longest recorded step; ``None`` where nothing can be
    drawn."""
    timeline = analysis.timeline
    if timeline is None:
        return None
    kinds = []
    all_words = dict(_TIMELINE_KINDS)
    if analysis.sync_stall_percent is None:
        all_words["transfer"] = "exposed communication"
    for kind, words in all_words.items():
        stretches = tuple(
            TimeSpan(row, bar.start * 1e3, bar.end * 1e3)
            for row, rank in enumerate(timeline.ranks)
            for bar in rank.bars
            if bar.kind == kind
        )
        if stretches:
            kinds.append((words, stretches))
    what = "the recording"
    if timeline.step is not None:
        what = f"the longest recorded step ({timeline.step})"
    return TimelineChart(
        name=chart_name("timeline", title),
        title=f"{title}: {what}",
        summary=f"Activity of each rank in {what} of {title}, {format_seconds(timeline.seconds)} "
        "long.",
        x_label="ms",
        rows=tuple(f"rank {rank.rank}" for rank in timeline.ranks),
        kinds=tuple(kinds),
    )
