"""The list of baselines as a table, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue, Tone, text_value


@dataclass(frozen=True)
class BaselineRow:
    """A baseline in a list.

    Attributes:
        name: Name of the baseline.
        measured_at: UTC, ISO 8601.
        device: Names of its devices.
        machines: How many machines it holds.
        cells: How many were measured.
        launches: Number of launches of the measured cell with fewest.
        problem: Why it cannot be read; the other fields are then empty.
    """

    name: str
    measured_at: str = ""
    device: str = ""
    machines: int = 1
    cells: int = 0
    launches: int = 0
    problem: str = ""


def baselines_json(rows: Sequence[BaselineRow]) -> str:
    """An object for each baseline; only ``name`` and ``problem`` of one that cannot be read."""
    return json.dumps([_content(row) for row in rows], indent=1, ensure_ascii=False)


def baselines_table(rows: Sequence[BaselineRow]) -> Table:
    """One row for each baseline."""
    columns = (
        Column("name"),
        Column("measured"),
        Column("machines", numeric=True),
        Column("cells", numeric=True),
        Column("launches", numeric=True),
        Column("device", prose=True),
        Column("problem", prose=True),
    )
    return Table("", columns, tuple(map(_row, rows)))


def _row(row: BaselineRow) -> tuple[TableValue, ...]:
    if row.problem:
        problem = TableValue(row.problem, None, Tone.BAD)
        return (TableValue(row.name), *[DASH] * 5, problem)
    counts = map(str, (row.machines, row.cells, row.launches))
    texts = (row.name, row.measured_at[:10], *counts, row.device)
    return (*map(text_value, texts), TableValue(""))


def _content(row: BaselineRow) -> dict[str, str | int]:
    if row.problem:
        return {"name": row.name, "problem": row.problem}
    return {key: value for key, value in vars(row).items() if key != "problem"}
