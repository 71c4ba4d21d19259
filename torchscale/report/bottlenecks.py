"""The report's sections on lost time: its parts at each count, what holds training back, and profiles."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.decomposition import UNEXPLAINED_LIMIT, Decomposition
from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.report.document import (
    DASH,
    Block,
    Bullets,
    ChartGrid,
    Column,
    Document,
    Paragraph,
    Part,
    Section,
    StackedChart,
    Stretch,
    Table,
    TimelineChart,
    Tone,
    Value,
    optional_value,
    shortened,
)
from torchscale.report.profile_words import RANK_HEADINGS, finding_text, not_judged, rank_shares, stall_line
from torchscale.report.selection import MAX_PANELS
from torchscale.report.words import (
    batch_words,
    chart_name,
    device_noun,
    identity_columns,
    identity_values,
    panel_title,
    panels,
    plural,
)
from torchscale.schema.finding import Confidence, Diagnosis, Finding
from torchscale.schema.profile import ProfileAnalysis, RankBreakdown
from torchscale.units import format_bytes, format_percent, format_seconds

MAX_PROFILES = 12
_MAX_ROWS = 20
_DRAWN_SHARE = 0.001
"""A part below this share of the step would be a line nobody sees; the table has it."""
_PARTS = (
    ("own compute slower", "own_compute"),
    ("data wait", "data_wait"),
    ("straggler wait", "straggler_wait"),
    ("exposed communication", "exposed_communication"),
    ("unexplained", "unexplained"),
)
_TIMELINE_KINDS = {"compute": "compute", "wait": "waiting for ranks", "transfer": "exchange", "input": "data wait"}
_CONFIDENCE_TONE = {Confidence.HIGH: Tone.PLAIN, Confidence.MEDIUM: Tone.PLAIN, Confidence.LOW: Tone.DIM}


def lost_time(summary: RunSummary) -> Section:
    """Where the time goes at each count, stacked."""
    lines = [line for found in panels(summary.measured).values() for line in found]
    lossy = [line for line in lines if any(cell.decomposition for cell in line)]
    drawn = lossy if len(lossy) <= MAX_PANELS else sorted(lossy, key=_most_lost, reverse=True)[:MAX_PANELS]
    if not lossy:
        return Section("Where the time goes", "lost", ())
    rows = tuple(_lost_row(cell) for line in lossy for cell in line if cell.decomposition is not None)
    columns = (
        *identity_columns(summary),
        Column("step", True),
        Column("ideal", True),
        *(Column(name, True) for name, _ in _PARTS),
    )
    text = (
        "A step at each count: the ideal is the step of the smallest count; on it lies what that count adds, as means "
        "over ranks. Own compute is forward, backward and optimizer; straggler wait is waiting for ranks that arrive "
        "later at the exchange of gradients; exposed communication is the exchange that no compute hides. The parts "
        "add up to the measured step."
    )
    blocks: list[Block] = [Paragraph(text), ChartGrid(tuple(_lost_chart(line, summary) for line in drawn))]
    if len(lossy) > MAX_PANELS:
        words = f"Drawn are the {MAX_PANELS} of {len(lossy)} that lose most; the table holds all."
        blocks.append(Paragraph(words, of_charts=True))
    blocks.append(Table("Parts of the mean step", columns, rows))
    unexplained = [cell for line in lossy for cell in line if _unexplained(cell)]
    if unexplained:
        names = ", ".join(shortened(cell.cell.id) for cell in unexplained[:4])
        blocks.append(Paragraph(f"More than {UNEXPLAINED_LIMIT:.0%} of the step is unexplained in {names}."))
    return Section("Where the time goes", "lost", tuple(blocks))


def _most_lost(line: Sequence[CellSummary]) -> float:
    """The largest share of a step that a count adds to the ideal."""
    return max((1 - lost.ideal / lost.step for cell in line if (lost := cell.decomposition) is not None), default=0.0)


def _unexplained(cell: CellSummary) -> bool:
    lost = cell.decomposition
    return lost is not None and abs(lost.unexplained) > UNEXPLAINED_LIMIT * lost.step


def _lost_chart(line: Sequence[CellSummary], summary: RunSummary) -> StackedChart:
    cell = line[0].cell
    found = [(item.cell.world_size, item.decomposition) for item in line if item.decomposition is not None]
    base_count = found[0][1].baseline_world_size
    base = next(item.figures.parts.step for item in line if item.figures is not None and item.figures.parts is not None)
    bars = (str(base_count), *(str(count) for count, _ in found))
    ideal = (base * 1e3, *(lost.ideal * 1e3 for _, lost in found))
    parts = [Part(f"step at {base_count}", ideal)]
    for style, (name, key) in enumerate(_PARTS):
        if any(abs(getattr(lost, key)) >= _DRAWN_SHARE * lost.step for _, lost in found):
            parts.append(Part(name, (0.0, *(getattr(lost, key) * 1e3 for _, lost in found)), style))
    title = f"{panel_title(cell)}, {batch_words(cell)}"
    return StackedChart(
        name=chart_name("lost", title),
        title=title,
        summary=f"Parts of the mean step by number of {device_noun(summary)} for {title}.",
        x_label=device_noun(summary),
        y_label="mean step, ms",
        bars=bars,
        parts=tuple(parts),
    )


def _lost_row(cell: CellSummary) -> tuple[Value, ...]:
    lost = cell.decomposition
    assert lost is not None  # noqa: S101 - only such cells come here; this tells the type checker
    return (
        *identity_values(cell.cell),
        Value(format_seconds(lost.step), lost.step),
        Value(format_seconds(lost.ideal), lost.ideal),
        *(_part_value(lost, key) for _, key in _PARTS),
    )


def _part_value(lost: Decomposition, key: str) -> Value:
    seconds: float = getattr(lost, key)
    sign = "−" if seconds < 0 else ""
    return Value(f"{sign}{format_seconds(abs(seconds))} ({format_percent(seconds / lost.step)})", seconds)


def diagnosis_section(summary: RunSummary) -> Section:
    """What the always-on signals say of each cell."""
    judged = [(cell, cell.diagnosis) for cell in summary.measured if cell.diagnosis is not None]
    if not judged:
        return Section("What holds it back", "diagnosis", ())
    text = "From signals that every launch of several ranks takes, without a profiler. A cost is at most what fixing "
    blocks: list[Block] = [Paragraph(text + "it would give, as a share of the step; costs overlap and do not add up.")]
    windows = [seconds for cell in summary.cells for seconds in cell.facts.alone_wall_seconds]
    if windows:
        spread = format_seconds(max(windows))
        if min(windows) < max(windows):
            spread = f"{format_seconds(min(windows))} to {spread}"
        blocks.append(
            Paragraph(f"The windows without synchronisation took {spread} a launch; they count in no throughput.")
        )
    rows = [_finding_row(cell, finding) for cell, diagnosis in judged for finding in diagnosis.findings]
    clean = sum(1 for _, diagnosis in judged if not diagnosis.findings)
    if clean:
        blocks.append(Paragraph(f"No bottleneck was found in {clean} of {len(judged)} cells."))
    if rows:
        columns = (
            *identity_columns(summary),
            Column("cost", True),
            Column("finding", prose=True),
            Column("what to do", prose=True),
            Column("confidence, warnings"),
        )
        blocks.append(Table("Findings", columns, tuple(rows), searchable=True))
    told = dict.fromkeys(item for _, diagnosis in judged for item in diagnosis.abstentions)
    blocks += _abstentions(Diagnosis(abstentions=tuple(told)))
    return Section("What holds it back", "diagnosis", tuple(blocks))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _abstentions(diagnosis: Diagnosis) -> list[Block]:
    if not diagnosis.abstentions:
        return []
    return [Paragraph(f"{not_judged(diagnosis.abstentions)}.")]


def _finding_row(cell: CellSummary, finding: Finding) -> tuple[Value, ...]:
    cost = Value(format_percent(finding.cost_percent / 100), finding.cost_percent)
    tone = Tone.CAUTION if cell.flags else _CONFIDENCE_TONE[finding.confidence]
    return (
        *identity_values(cell.cell),
        cost if finding.cost_percent else DASH,
        Value(shortened(f"{finding.kind.words}: {finding.summary}. Evidence: {'; '.join(finding.evidence)}.")),
        Value(shortened(_sentence(finding.advice))),
        Value(", ".join([finding.confidence.value, *(flag.value for flag in cell.flags)]), None, tone),
    )


def profile_section(summary: RunSummary) -> Section:
    """Each profiled cell: its figure, its causes, where its ranks' time went, its worst step as a picture."""
    blocks: list[Block] = []
    profiled = [(cell, cell.profile) for cell in summary.cells if cell.profile is not None]
    for cell, analysis in profiled[:MAX_PROFILES]:
        title = f"{panel_title(cell.cell)}, {batch_words(cell.cell)}, {cell.cell.world_size} ranks"
        blocks += profile_blocks(analysis, title)
    if len(profiled) > MAX_PROFILES:
        blocks.append(Paragraph(f"The first {MAX_PROFILES} of {len(profiled)} profiles are shown."))
    return Section("Profiles", "profiles", tuple(blocks))


def profile_document(analysis: ProfileAnalysis, name: str) -> Document:
    """The report of a recording that belongs to no benchmark: a user's own training, or what others sent."""
    blocks = profile_blocks(analysis, shortened(name))
    collectives = _collectives(analysis)
    if collectives is not None:
        blocks.append(collectives)
    kernels = _kernels(analysis)
    if kernels is not None:
        blocks.append(kernels)
    blocks += _abstentions(Diagnosis(abstentions=analysis.abstentions))
    notes = tuple(shortened(note) for note in analysis.notes)
    sections = [Section("Recording", "recording", tuple(blocks))]
    if notes:
        sections.append(Section("Notes", "notes", (Bullets(notes),)))
    costly = analysis.findings[0] if analysis.findings else None
    return Document(
        title=f"Training profile: {shortened(name)}",
        subtitle=f"{plural(analysis.world_size, 'rank')} · {analysis.recorder}",
        verdict=(
            f"{stall_line(analysis)}.",
            f"What costs most: {shortened(finding_text(costly))}." if costly else "Found no bottleneck.",
        ),
        key_figures=(),
        sections=tuple(sections),
    )


def _collectives(analysis: ProfileAnalysis) -> Table | None:
    if not analysis.collectives:
        return None
    rows = []
    for item in analysis.collectives[:_MAX_ROWS]:
        last = DASH
        if item.last_rank is not None and item.last_percent is not None:
            last = Value(f"rank {item.last_rank} ({format_percent(item.last_percent / 100, 0)})", item.last_percent)
        times = (item.mean_seconds, item.wait_seconds, item.transfer_seconds)
        rows.append(
            (
                Value(shortened(item.op)),
                optional_value(item.payload_bytes, format_bytes),
                Value(f"{item.count:,}", item.count),
                *(optional_value(time, format_seconds) for time in times),
                last,
            )
        )
    headings = ("size", "count", "time", "wait", "transfer", "last")
    columns = (Column("operation"), *(Column(heading, True) for heading in headings))
    return Table("Collectives, mean over ranks", columns, tuple(rows))


def _kernels(analysis: ProfileAnalysis) -> Table | None:
    if not analysis.kernels:
        return None
    rows = tuple(
        (
            Value(shortened(kernel.name)),
            Value(f"{kernel.count:,}", kernel.count),
            Value(format_seconds(kernel.seconds), kernel.seconds),
            Value(format_percent(kernel.percent_of_compute / 100), kernel.percent_of_compute),
        )
        for kernel in analysis.kernels
    )
    columns = (Column("kernel or operator", prose=True), *(Column(name, True) for name in ("count", "time", "share")))
    return Table("Costliest kernels or operators, summed over ranks", columns, rows)


def profile_blocks(analysis: ProfileAnalysis, title: str) -> list[Block]:
    """One recording."""
    told = [f"{title}: {stall_line(analysis)}, recorded with {analysis.recorder}."]
    if analysis.window.reasons:
        told.append(f"Low confidence: {'; '.join(analysis.window.reasons)}.")
    blocks: list[Block] = [Paragraph(shortened(" ".join(told)))]
    if analysis.findings:
        blocks.append(
            Bullets(tuple(shortened(f"{finding_text(item)}. {_sentence(item.advice)}") for item in analysis.findings))
        )
    else:
        blocks.append(Paragraph("Found no bottleneck."))
    chart = _timeline_chart(analysis, title)
    if chart is not None:
        blocks.append(ChartGrid((chart,), wide=True))
    columns = tuple(Column(heading, True) for heading in RANK_HEADINGS)
    rows = tuple(_rank_row(rank) for rank in analysis.per_rank)
    blocks.append(Table(f"Where the time went, share of each rank's window: {title}", columns, rows))
    return blocks


def _rank_row(rank: RankBreakdown) -> tuple[Value, ...]:
    values = (optional_value(share, format_percent) for share in rank_shares(rank))
    return (Value(str(rank.rank), rank.rank), *values)


def _timeline_chart(analysis: ProfileAnalysis, title: str) -> TimelineChart | None:
    timeline = analysis.timeline
    if timeline is None:
        return None
    kinds = []
    for kind, words in _TIMELINE_KINDS.items():
        stretches = tuple(
            Stretch(row, bar.start * 1e3, bar.end * 1e3)
            for row, rank in enumerate(timeline.ranks)
            for bar in rank.bars
            if bar.kind == kind
        )
        if stretches:
            kinds.append((words, stretches))
    what = "the recording" if timeline.step is None else f"the longest recorded step ({timeline.step})"
    return TimelineChart(
        name=chart_name("timeline", title),
        title=f"{title}: {what}",
        summary=f"What each rank did in {what} of {title}, {format_seconds(timeline.seconds)} long.",
        x_label="ms",
        rows=tuple(f"rank {rank.rank}" for rank in timeline.ranks),
        kinds=tuple(kinds),
    )
