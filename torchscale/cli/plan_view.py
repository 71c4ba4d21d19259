"""How a plan is shown before anything runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from torchscale.analysis.forecast import sweep_seconds
from torchscale.catalog.models import model_title
from torchscale.cli.output import result_console
from torchscale.plan import Plan
from torchscale.schema.cell import Cell
from torchscale.schema.config import Benchmark
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.memory import MemoryCell, PredictedMemory
from torchscale.schema.strategy import strategy_label
from torchscale.schema.task import AnyCell
from torchscale.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Forecast:
    """What cells are predicted to take.

    Attributes:
        predicted: By cell id; cells without a prediction are not in it.
        device_bytes: What a device has; ``None`` where it is not known.
        shared: Whether all ranks share that.
    """

    predicted: Mapping[str, PredictedMemory]
    device_bytes: int | None
    shared: bool

    def peak_bytes(self, cell: AnyCell) -> int | None:
        """Of a device, or of all ranks together where they share one memory."""
        found = self.predicted.get(cell.training.id if isinstance(cell, MemoryCell) else cell.id)
        return None if found is None else found.peak_bytes * (cell.world_size if self.shared else 1)

    def fits(self, cell: AnyCell) -> bool | None:
        """Whether it should fit; ``None`` where that cannot be said."""
        peak = self.peak_bytes(cell)
        return None if peak is None or self.device_bytes is None else peak <= self.device_bytes


def print_plan(plan: Plan, *, where: str, folder: Path, settings: Benchmark, forecast: Forecast) -> None:
    """One row a cell, with the skipped ones and why, those that should not fit, and how long it may take."""
    console = result_console()
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
        f"\n{len(plan.cells)} cells: {len(plan.to_run)} to run ({launches} launches), {skipped} skipped. On {where}."
    )
    low, high = sweep_seconds(plan.to_run, settings.repeats, settings.cell_seconds)
    console.print(
        f"It should take between {format_seconds(low)} and {format_seconds(high)}, by the rule that ends a measurement."
    )
    missing = sum(forecast.peak_bytes(cell) is None for cell in plan.to_run if isinstance(cell, Cell | MemoryCell))
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


def plan_json(plan: Plan, forecast: Forecast) -> str:
    """The plan for machines: each cell with its id and the reason if it is skipped."""
    cells = [
        {
            "cell_id": entry.cell.id,
            "skip_reason": entry.skip_reason,
            "predicted_peak_bytes": forecast.peak_bytes(entry.cell),
            "predicted_to_fit": forecast.fits(entry.cell),
            **entry.cell.model_dump(mode="json"),
        }
        for entry in plan.cells
    ]
    content = {
        "plan_hash": plan.hash,
        "device": plan.device,
        "device_indices": plan.device_indices,
        "threads_per_rank": plan.threads_per_rank,
        "cells": cells,
    }
    return json.dumps(content, indent=1)


def _row(entry: PlannedCell, reasons: dict[str, str]) -> tuple[str, ...]:
    """A cell's row; a new reason for skipping gets the next letter."""
    cell = entry.cell
    action = "run"
    if entry.skip_reason:
        action = f"skip ({reasons.setdefault(entry.skip_reason, _letters(len(reasons)))})"
    if isinstance(cell, MemoryCell):
        _, batch, count, precision, strategy, _ = _row(PlannedCell(cell=cell.training), {})
        return escape(cell.title), batch, count, precision, strategy, action
    if not isinstance(cell, Cell):
        return cell.title, "", str(cell.world_size), "", escape(" ".join(cell.settings)), action
    batch = f"{cell.batch_size}" if cell.scaling == "weak" else f"{cell.batch_size} global"
    strategy = escape(" ".join([strategy_label(cell.strategy), *cell.settings]))
    return escape(model_title(cell.model)), batch, str(cell.world_size), cell.precision, strategy, action


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)
