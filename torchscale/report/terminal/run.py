"""The results as a table on the terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.kinds import report_kind
from torchscale.report.text.labels import batch_label, format_half_width, panel_title, plural, short_batch, short_title
from torchscale.report.text.profile import finding_text
from torchscale.schema.state import State
from torchscale.util.units import format_bytes, format_percent, format_rate, format_seconds

_STATE_STYLE = {State.OK: "green", State.SKIPPED: "dim", State.INTERRUPTED: "yellow", State.INCOMPLETE: "yellow"}
_MAX_BOTTLENECKS = 8
"""A third of a screen, below the table of cells; the report lists all."""
_GRADE_STYLE = {"excellent": "green", "good": "green", "low": "yellow"}


def print_results(summary: RunSummary, console: Console) -> None:
    """One row per cell, then skipped cells, failed cells and the meaning of the flags."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("model", overflow="fold")
    with_mfu = any(cell.compute is not None and cell.compute.mfu is not None for cell in summary.cells)
    for heading in ("batch", "n" if with_mfu else "devices", "samples/s", "step", "±95 %", "efficiency", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    if with_mfu:
        table.add_column("MFU", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for cell in summary.cells:
        if cell.state is not State.SKIPPED:
            table.add_row(*_row(cell, with_mfu=with_mfu))
    if table.row_count:
        console.print()
        console.print(table)
        console.print()
    lines = [
        *_machine_lines(summary),
        *_bottleneck_lines(summary),
        *_skipped_lines(summary),
        *_failed_lines(summary),
        *_flag_lines(summary),
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _machine_lines(summary: RunSummary) -> list[str]:
    """A line for each machine cell; failed ones are listed below with their reasons."""
    shown = [cell for cell in summary.machine if cell.state is State.OK]
    return [
        f"{cell.cell.title}, n={cell.cell.world_size}: {report_kind(cell.cell.kind).outcome(cell)}" for cell in shown
    ]


def _bottleneck_lines(summary: RunSummary) -> list[str]:
    """The costliest finding of each cell at the largest count; the report lists all."""
    diagnosed = [(cell, cell.diagnosis) for cell in summary.measured if cell.diagnosis is not None]
    largest = max((cell.cell.world_size for cell, _ in diagnosed), default=0)
    lines = [
        f"  {panel_title(cell.cell)}, {batch_label(cell.cell)}{'*' * bool(cell.flags)}: "
        + finding_text(diagnosis.findings[0])
        for cell, diagnosis in diagnosed
        if diagnosis.findings and cell.cell.world_size == largest
    ]
    if not lines:
        return []
    more = [f"  … and {len(lines) - _MAX_BOTTLENECKS} more in the report"] if len(lines) > _MAX_BOTTLENECKS else []
    return [f"Largest cost at {largest} devices:", *lines[:_MAX_BOTTLENECKS], *more]


def _skipped_lines(summary: RunSummary) -> list[str]:
    reasons = Counter(cell.reason for cell in summary.everything if cell.state is State.SKIPPED)
    return [f"skipped {count} cell{'s' * (count > 1)}: {reason}" for reason, count in reasons.items()]


def _failed_lines(summary: RunSummary) -> list[str]:
    fine = (State.OK, State.SKIPPED)
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in summary.everything:
        if cell.state not in fine:
            reasons.setdefault((cell.state.value, cell.reason), []).append(cell.cell.id)
    failed = []
    for (state, reason), cells in reasons.items():
        more = f" and {plural(len(cells) - 1, 'other cell')}" if len(cells) > 1 else ""
        failed.append(f"{state}: {cells[0]}{more}: {reason}")
    return failed + [f"skipped: {problem}" for problem in summary.problems]


def _flag_lines(summary: RunSummary) -> list[str]:
    flags = Counter(flag for cell in summary.cells for flag in cell.flags)
    lines = [f"{flag.value} ({count}): {flag.explanation}." for flag, count in sorted(flags.items())]
    return ["* has a warning, or is based on a cell with one:", *lines] if lines else []


def _row(summary: TrainingSummary, *, with_mfu: bool) -> list[str]:
    cell, figures = summary.cell, summary.figures
    style = _STATE_STYLE.get(summary.state, "red")
    head = [escape(short_title(cell)), short_batch(cell), str(cell.world_size)]
    if figures is None:
        return [*head, *["–"] * (5 + with_mfu), f"[{style}]{summary.state.value}[/{style}]"]
    mark = "[yellow]*[/yellow]" if summary.flags else ""
    half_width = figures.run_half_width if figures.run_half_width is not None else figures.half_width
    return [
        *head,
        format_rate(figures.samples_per_second),
        format_seconds(figures.step_p50),
        "–" if half_width is None else format_half_width(half_width),
        _efficiency(summary),
        "–" if figures.peak_memory_bytes is None else format_bytes(figures.peak_memory_bytes),
        *([_utilization(summary)] if with_mfu else []),
        f"[{style}]{summary.state.value}[/{style}]{mark}",
    ]


def _utilization(summary: TrainingSummary) -> str:
    mfu = None if summary.compute is None else summary.compute.mfu
    return "–" if mfu is None else format_percent(mfu)


def _efficiency(summary: TrainingSummary) -> str:
    """– without a baseline; ``*`` where the value is based on a flagged cell."""
    efficiency = summary.efficiency
    if efficiency is None:
        return "–"
    if efficiency.baseline_world_size == summary.cell.world_size:
        return "baseline"
    style = _GRADE_STYLE[efficiency.grade]
    mark = "*" if efficiency.flags else ""
    return f"[{style}]{format_percent(efficiency.value)}{mark}[/{style}]"
