"""A plan as a table, before anything runs."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.config.sections import BenchmarkSettings
from torchscale.plan.duration import sweep_seconds
from torchscale.plan.expand import Plan
from torchscale.plan.forecast import Forecast
from torchscale.plan.kinds import plan_kind
from torchscale.schema.cells.kinds import training_workload
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.util.units import format_bytes, format_seconds


def print_plan(
    plan: Plan, console: Console, *, device_label: str, folder: Path, settings: BenchmarkSettings, forecast: Forecast
) -> None:
    """One row a cell, with the skipped ones and why, those that should not fit, and how long it may take."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("model", no_wrap=True)
    table.add_column("batch", justify="right")
    table.add_column("devices", justify="right")
    table.add_column("precision")
    table.add_column("strategy")
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("action")
    reasons: dict[str, str] = {}
    for number, entry in enumerate(plan.cells, start=1):
        *row, action = _row(entry, reasons)
        peak = forecast.peak_bytes(entry.cell)
        if forecast.fits(entry.cell) is False and not entry.skip_reason:
            action = "[yellow]run, may not fit[/yellow]"
        memory = "" if peak is None else format_bytes(peak)
        table.add_row(str(number), *row, memory, action, style="dim" if entry.skip_reason else None)
    console.print(table)
    for reason, mark in reasons.items():
        console.print(f"{mark}  {reason}", soft_wrap=True, markup=False, highlight=False, style="dim")
    launches = len(plan.to_run) * settings.repeats
    skipped = len(plan.cells) - len(plan.to_run)
    console.print(
        f"\n{len(plan.cells)} cells: {len(plan.to_run)} to run ({launches} launches), {skipped} skipped. "
        f"On {device_label}."
    )
    low, high = sweep_seconds(plan.to_run, settings.repeats, settings.cell_seconds)
    console.print(
        f"It should take between {format_seconds(low)} and {format_seconds(high)}, by the rule that ends a measurement."
    )
    missing = sum(forecast.peak_bytes(cell) is None for cell in plan.to_run if training_workload(cell) is not None)
    if missing and forecast.predicted:
        console.print(f"Memory was not predicted for {missing} of them: no way to, or no time.", style="dim")
    misfits = sum(forecast.fits(cell) is False for cell in plan.to_run)
    if misfits and forecast.device_bytes is not None:
        what = "all ranks together" if forecast.shared else "a device"
        console.print(
            f"{misfits} {'cell is' if misfits == 1 else 'cells are'} predicted to take more than the "
            f"{format_bytes(forecast.device_bytes)} that {what} can have.",
            style="yellow",
        )
    console.print(f"Results would go to {folder}.", soft_wrap=True, markup=False)


def _row(entry: PlannedCell, reasons: dict[str, str]) -> tuple[str, ...]:
    """A cell's row; a new reason for skipping gets the next letter."""
    row = plan_kind(entry.cell.kind).table_row(entry.cell)
    action = "run"
    if entry.skip_reason:
        action = f"skip ({reasons.setdefault(entry.skip_reason, _letters(len(reasons)))})"
    return escape(row.name), row.batch, row.devices, row.precision, escape(row.strategy), action


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)
