"""An analysis on the terminal: the one figure, then causes by cost, then where each rank's time
went."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchscale.config.choices import ProfileTarget
from torchscale.report.document import optional_text
from torchscale.report.text.findings import finding_text, not_judged
from torchscale.report.text.profile import (
    MIN_GAIN_PERCENT,
    RANK_HEADINGS,
    WHAT_IF_HEADINGS,
    rank_columns,
    rank_shares,
    shown_predictions,
    stall_line,
    what_if_line,
)
from torchscale.report.text.rank_table import distributions, hidden_line, shown_ranks
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Confidence, Diagnosis
from torchscale.util.units import format_byte_rate, format_bytes, format_percent, format_seconds

_DASH = "–"

_FIGURES_WIDTH = 38
"""Columns of a kernel's count, time and share; its name has the rest of the line."""


def print_analysis(
    analysis: ProfileAnalysis, console: Console, target: ProfileTarget = ProfileTarget.ALL
) -> None:
    """The whole analysis, with the tables that ``target`` asks for."""
    console.print(stall_line(analysis), markup=False, soft_wrap=True, style="bold")
    if analysis.window.confidence is not Confidence.HIGH:
        console.print(
            "Low confidence: " + "; ".join(analysis.window.reasons) + ".",
            markup=False,
            soft_wrap=True,
        )
    for line in finding_lines(Diagnosis(findings=analysis.findings)):
        console.print(line, markup=False, soft_wrap=True)
    for note in analysis.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True, style="dim")
    console.print()
    console.print(_ranks_table(analysis))
    if analysis.collectives and target in (ProfileTarget.SYNC_STALLS, ProfileTarget.ALL):
        console.print()
        console.print(_collectives_table(analysis))
    if analysis.kernels and target in (ProfileTarget.KERNELS, ProfileTarget.ALL):
        console.print()
        console.print(_kernels_table(analysis, console.width))
    if analysis.abstentions:
        console.print()
        console.print(not_judged(analysis.abstentions), markup=False, soft_wrap=True, style="dim")


def print_predictions(analysis: ProfileAnalysis, console: Console) -> None:
    """What the step would be without each of its faults."""
    what_if = analysis.what_if
    if what_if is None:
        return
    console.print()
    console.print(what_if_line(what_if), markup=False, soft_wrap=True, style="bold")
    rows = shown_predictions(what_if)
    if rows:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for heading in WHAT_IF_HEADINGS:
            table.add_column(
                heading, justify="right" if heading.startswith("predicted") else "left"
            )
        for row in rows:
            gain = format_percent(row.gain_percent / 100)
            table.add_row(
                Text(row.label), format_seconds(row.step_seconds), gain, Text(row.assumption)
            )
        console.print(table)
    elif what_if.refused is None:
        console.print(
            f"No change would gain {MIN_GAIN_PERCENT:g} % of the step or more.",
            markup=False,
            soft_wrap=True,
        )
    for note in what_if.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True, style="dim")


def finding_lines(diagnosis: Diagnosis) -> list[str]:
    """``Found 2 bottlenecks:`` and each with its evidence and what to do."""
    findings = diagnosis.findings
    if not findings:
        return ["No bottleneck found."]
    lines = [f"Found {len(findings)} bottleneck{'s' * (len(findings) > 1)}:"]
    for number, finding in enumerate(findings, 1):
        lines.append(f"  {number}. {finding_text(finding)}")
        lines += [f"     evidence: {item}" for item in finding.evidence]
        lines.append(f"     what to do: {finding.advice}")
    return lines


def _ranks_table(analysis: ProfileAnalysis) -> Table:
    title = "Where the time goes, share of each rank's window"
    hidden = hidden_line(analysis.per_rank)
    if hidden:
        title += f" ({hidden})"
    table = titled_table(title)
    places = rank_columns(analysis.per_rank)
    for place in places:
        table.add_column(RANK_HEADINGS[place], justify="right", no_wrap=True)
    with_memory = any(rank.peak_memory_bytes is not None for rank in analysis.per_rank)
    if with_memory:
        table.add_column("peak memory", justify="right", no_wrap=True)
    for line in distributions(analysis.per_rank):
        table.add_row(*_at(places, [line.label, *_percents(line.shares)]))
    for rank in shown_ranks(analysis.per_rank):
        table.add_row(
            *_at(places, [str(rank.rank), *_percents(rank_shares(rank))]),
            *([optional_text(rank.peak_memory_bytes, format_bytes)] * with_memory),
        )
    return table


def _percents(shares: Sequence[float | None]) -> list[str]:
    return [optional_text(share, format_percent) for share in shares]


def _at(places: Sequence[int], texts: Sequence[str]) -> list[str]:
    return [texts[place] for place in places]


def _collectives_table(analysis: ProfileAnalysis) -> Table:
    table = titled_table("Collectives, mean over ranks")
    for heading in ("operation", "size", "count", "time", "wait", "transfer", "busbw", "last"):
        table.add_column(
            heading, justify="left" if heading == "operation" else "right", no_wrap=True
        )
    for item in analysis.collectives[:10]:
        last = _DASH
        if item.last_rank is not None and item.last_percent is not None:
            last = f"rank {item.last_rank} ({format_percent(item.last_percent / 100, 0)})"
        table.add_row(
            item.op,
            optional_text(item.payload_bytes, format_bytes),
            str(item.count),
            format_seconds(item.mean_seconds),
            optional_text(item.wait_seconds, format_seconds),
            optional_text(item.transfer_seconds, format_seconds),
            optional_text(item.bus_bytes_per_second, format_byte_rate),
            last,
        )
    return table


def _kernels_table(analysis: ProfileAnalysis, width: int) -> Table:
    table = titled_table("Kernels or operators by total time")
    table.add_column(
        "name", overflow="ellipsis", no_wrap=True, max_width=max(20, width - _FIGURES_WIDTH)
    )
    for heading in ("count", "time", "share of compute"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kernel in analysis.kernels[:10]:
        share = format_percent(kernel.percent_of_compute / 100)
        table.add_row(kernel.name, str(kernel.count), format_seconds(kernel.seconds), share)
    return table


def titled_table(title: str) -> Table:
    """A table under its title, without lines."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
