"""A plan as a table, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from torchscale.analysis.summary.scripts import differing_arguments
from torchscale.plan.duration import CellProgress, DurationEstimate
from torchscale.plan.expand import Plan
from torchscale.plan.kinds import plan_kind
from torchscale.plan.memory import Forecast
from torchscale.report.formats.console_table import TableOnConsole
from torchscale.report.formats.console_text import STYLES, say
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, only_if, shortened
from torchscale.schema.cells.kinds import of_kind, training_workload
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.util.units import format_bytes, format_coarse_seconds
from torchscale.util.words import by_count, plural

_COLUMNS = (
    Column("#", True, identifies=True),
    Column("model", identifies=True),
    Column("batch", True),
    Column("devices", True),
    Column("precision"),
    Column("strategy"),
    Column("tensor memory", True),
    Column("action"),
)


def print_plan(
    plan: Plan,
    console: Console,
    *,
    device_label: str,
    folder: Path,
    forecast: Forecast,
    progress: Sequence[CellProgress],
    estimate: DurationEstimate,
) -> None:
    """One row a cell: what is done and left, what is skipped and why, what should not fit, how long
    the rest may take.

    Args:
        plan: The cells.
        console: Where to.
        device_label: The devices in words.
        folder: Where results are, or would go.
        forecast: Predicted memory.
        progress: Progress of every cell to run.
        estimate: Estimate of the time of what is left.
    """
    reasons: dict[str, str] = {}
    apart = differing_arguments(of_kind((entry.cell for entry in plan.cells), TrainingCell))
    of_cell = {item.cell.id: item for item in progress}
    rows = []
    for number, entry in enumerate(plan.cells, start=1):
        peak = forecast.peak_bytes(entry.cell)
        memory = ""
        if peak is not None:
            memory = format_bytes(peak)
        action = _action(entry, of_cell.get(entry.cell.id), forecast, reasons)
        values = (str(number), *_row(entry, apart), memory)
        tone = Tone.PLAIN
        if entry.skip_reason:
            tone = Tone.DIM
        rows.append((*(TableValue(text, None, tone) for text in values), action))
    console.print(TableOnConsole(Table("", _COLUMNS, tuple(rows))), soft_wrap=True)
    for reason, mark in reasons.items():
        say(console, f"{mark}  {reason}", "dim", indent=len(mark) + 2)
    console.print()
    say(console, f"{_counts_line(plan, progress)} On {device_label}.")
    for line in _time_lines(progress, estimate):
        say(console, line)
    if forecast.predicted:
        whose = "one device"
        if forecast.shared:
            whose = "all ranks of a cell together"
        say(
            console,
            f"Tensor memory: predicted, of {whose}; libraries and the allocator come on top.",
        )
    missing = sum(
        forecast.peak_bytes(cell) is None
        for cell in plan.to_run
        if training_workload(cell) is not None
    )
    if missing and forecast.predicted:
        cells = f"{missing} cell{'s have' if missing > 1 else ' has'}"
        say(
            console,
            f"{cells} no memory prediction: not possible for the setting, or out of time.",
            "dim",
        )
    misfits = sum(forecast.fits(cell) is False for cell in plan.to_run)
    if misfits and forecast.device_bytes is not None:
        what = "a device"
        if forecast.shared:
            what = "all ranks together"
        say(
            console,
            f"{misfits} {by_count(misfits, 'cell is', 'cells are')} predicted to take more than "
            f"the {format_bytes(forecast.device_bytes)} that {what} can have.",
            STYLES[Tone.CAUTION],
        )
    say(console, f"Results would go to {folder}.")


def _counts_line(plan: Plan, progress: Sequence[CellProgress]) -> str:
    """``12 cells: 8 to run (54 launches: 30 done, 24 left), 4 skipped.``"""
    to_run = sum(item.left > 0 for item in progress)
    complete = len(progress) - to_run
    done, left = sum(item.done for item in progress), sum(item.left for item in progress)
    if done:
        launches = f"{plural(done + left, 'launch')}: {done} done, {left} left"
    else:
        launches = plural(left, "launch")
    parts = [
        *only_if(complete, f"{complete} done"),
        f"{to_run} to run ({launches})" if left or not complete else f"none to run ({launches})",
        f"{len(plan.cells) - len(progress)} skipped",
    ]
    return f"{plural(len(plan.cells), 'cell')}: {', '.join(parts)}."


def _time_lines(progress: Sequence[CellProgress], estimate: DurationEstimate) -> list[str]:
    """How long the rest takes, and what that rests on."""
    left = sum(item.left for item in progress)
    if not left:
        if progress:
            return ["Nothing is left to run."]
        return []
    low, high = format_coarse_seconds(estimate.low), format_coarse_seconds(estimate.high)
    if estimate.from_earlier == left:
        return [f"Estimated time: {high}, as long as earlier launches of these cells took."]
    lines = [
        f"Estimated time: {low} (shortest warm-up and measurement) to {high} (both at their "
        "limit). How long a step takes is not known before it is measured."
    ]
    if estimate.from_earlier:
        lines.append(
            f"{estimate.from_earlier} of the {left} launches are taken to last as long as earlier "
            "ones did."
        )
    if estimate.long_steps:
        slowest = format_coarse_seconds(max(estimate.long_steps.values()))
        lines.append(
            f"{plural(len(estimate.long_steps), 'cell')} may reach a timeout "
            "(launch.timeout_seconds, launch.stall_timeout_seconds): a step takes at least "
            f"{slowest} at the peak rate of the devices."
        )
    return lines


def _row(entry: PlannedCell, apart: Mapping[str, str]) -> tuple[str, ...]:
    row = plan_kind(entry.cell.kind).table_row(entry.cell)
    name = shortened(f"{row.name} {apart.get(entry.cell.id, '')}".rstrip())
    return name, row.batch, row.devices, row.precision, row.strategy


def _action(
    entry: PlannedCell, progress: CellProgress | None, forecast: Forecast, reasons: dict[str, str]
) -> TableValue:
    """What will be done with the cell; a new reason for skipping gets the next letter."""
    if entry.skip_reason:
        letter = reasons.setdefault(entry.skip_reason, _letters(len(reasons)))
        return TableValue(f"skip ({letter})", None, Tone.DIM)
    if progress is not None and not progress.left:
        return TableValue("done", None, Tone.GOOD)
    done = ""
    if progress is not None and progress.done:
        done = f", {progress.done} of {progress.done + progress.left} done"
    if forecast.fits(entry.cell) is False:
        return TableValue(f"run, may not fit{done}", None, Tone.CAUTION)
    return TableValue(f"run{done}")


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)
