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
    for number, entry in enumerate(plan.cells, start=1):
        table.add_row(str(number), *_row(entry), style="dim" if entry.skip_reason else None)
    console.print(table)
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


def _row(entry: PlannedCell) -> tuple[str, ...]:
    cell = entry.cell
    batch = f"{cell.batch_size}" if cell.scaling == "weak" else f"{cell.batch_size} global"
    extras = [name for name, on in (("channels_last", cell.channels_last), ("compile", cell.compile)) if on]
    strategy = " ".join([cell.strategy, *extras])
    action = f"skip: {escape(entry.skip_reason)}" if entry.skip_reason else "run"
    return escape(model_title(cell.model)), batch, str(cell.world_size), cell.precision, strategy, action
