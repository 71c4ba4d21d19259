"""How a plan is shown before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from torchscale.catalog.models import model_title
from torchscale.cli.output import result_console
from torchscale.plan import Plan
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.strategy import strategy_label


def print_plan(plan: Plan, *, where: str, folder: Path, repeats: int) -> None:
    """One row a cell, with the skipped ones and why."""
    console = result_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("model", no_wrap=True)
    table.add_column("batch", justify="right")
    table.add_column("devices", justify="right")
    table.add_column("precision")
    table.add_column("strategy")
    table.add_column("action")
    reasons: dict[str, str] = {}
    for number, entry in enumerate(plan.cells, start=1):
        table.add_row(str(number), *_row(entry, reasons), style="dim" if entry.skip_reason else None)
    console.print(table)
    for reason, mark in reasons.items():
        console.print(f"{mark}  {reason}", soft_wrap=True, markup=False, highlight=False, style="dim")
    launches = len(plan.to_run) * repeats
    skipped = len(plan.cells) - len(plan.to_run)
    console.print(
        f"\n{len(plan.cells)} cells: {len(plan.to_run)} to run ({launches} launches), {skipped} skipped. On {where}."
    )
    console.print(f"Results would go to {folder}.", soft_wrap=True, markup=False)


def plan_json(plan: Plan) -> str:
    """The plan for machines: each cell with its id and the reason if it is skipped."""
    cells = [
        {"cell_id": entry.cell.id, "skip_reason": entry.skip_reason, **entry.cell.model_dump(mode="json")}
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
    batch = f"{cell.batch_size}" if cell.scaling == "weak" else f"{cell.batch_size} global"
    strategy = escape(" ".join([strategy_label(cell.strategy), *cell.settings]))
    action = "run"
    if entry.skip_reason:
        action = f"skip ({reasons.setdefault(entry.skip_reason, _letters(len(reasons)))})"
    return escape(model_title(cell.model)), batch, str(cell.world_size), cell.precision, strategy, action


def _letters(number: int) -> str:
    """a, b, … z, aa, ab, …"""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)
