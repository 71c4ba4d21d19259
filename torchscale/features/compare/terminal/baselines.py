"""The list of baselines as a table on the terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class BaselineRow:
    """A baseline in a list.

    Attributes:
        name: Name of the baseline.
        measured_at: UTC, ISO 8601.
        device: Names of its devices.
        cells: How many were measured.
        launches: Number of launches of the measured cell with fewest.
        problem: Why it cannot be read; the other fields are then empty.
    """

    name: str
    measured_at: str = ""
    device: str = ""
    cells: int = 0
    launches: int = 0
    problem: str = ""


def baselines_json(rows: Sequence[BaselineRow]) -> str:
    """An object for each baseline; only ``name`` and ``problem`` of one that cannot be read."""
    return json.dumps([_content(row) for row in rows], indent=1, ensure_ascii=False)


def print_baselines(rows: Sequence[BaselineRow], console: Console) -> None:
    """One row for each baseline."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("name", "measured", "cells", "launches", "device"):
        table.add_column(
            heading,
            justify="right" if heading in ("cells", "launches") else "left",
            overflow="fold",
        )
    for row in rows:
        if row.problem:
            table.add_row(escape(row.name), f"[red]{escape(row.problem)}[/red]", "–", "–", "–")
        else:
            day = row.measured_at[:10]
            table.add_row(
                escape(row.name), day, str(row.cells), str(row.launches), escape(row.device)
            )
    console.print(table)


def _content(row: BaselineRow) -> dict[str, str | int]:
    if row.problem:
        return {"name": row.name, "problem": row.problem}
    return {key: value for key, value in vars(row).items() if key != "problem"}
