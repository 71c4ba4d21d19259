"""A measured series to predict from, out of the rows of a table that name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.features.decide.forecast.rates import shown
from torchscale.features.decide.forecast.series import MeasuredCount, MeasuredSeries, make_series

GPUS_PER_NODE = 8
"""Where neither the table nor the user says: most GPU servers that train have eight."""


@dataclass(frozen=True)
class MeasuredRow:
    """A line of the table; ``rate`` is of all GPUs, ``multiplied`` says by what it was
    multiplied."""

    line: int
    series: str
    gpus: int
    nodes: int | None
    launch: str
    rate: float
    unit: str
    work: float | None
    link: str | None
    multiplied: str


def series_of_rows(
    path: Path, name: str, rows: Sequence[MeasuredRow], gpus_per_node: int | None
) -> MeasuredSeries:
    """The series ``name`` of a table, empty for the only one.

    Raises:
        UsageError: rows contradict or repeat each other, or do not fit ``gpus_per_node``.
    """
    if name:
        what = f"{path}, series {shown(name)}"
    else:
        what = str(path)
    units, links = sorted({row.unit for row in rows}), {row.link for row in rows}
    if len({row.work is None for row in rows}) > 1:
        raise UsageError(
            f"{what}: samples or tokens are given in some lines alone",
            hint="fill in all, or leave them out",
        )
    if len(units) > 1:
        named = " and ".join(unit or "no unit" for unit in units[:2])
        raise UsageError(
            f"{what}: units are mixed ({shown(named)})",
            hint="one unit a series; name them in a column series",
        )
    if len(links) > 1:
        raise UsageError(
            f"{what}: links are mixed ({shown(', '.join(sorted(map(str, links))))})",
            hint="one link a series",
        )
    if len({row.nodes is None for row in rows}) > 1:
        raise UsageError(
            f"{what}: nodes are given in some lines alone", hint="fill in all, or leave them out"
        )
    seen: dict[tuple[int, int | None, str], int] = {}
    for row in rows:
        key = (row.gpus, row.nodes, row.launch)
        if key in seen:
            raise UsageError(
                f"{path}, line {row.line}: repeats {row.gpus} GPUs of line {seen[key]}",
                hint="number repeated launches in a column launch; separate workloads by a column "
                "series",
            )
        seen[key] = row.line
    points = _points(what, rows, gpus_per_node or GPUS_PER_NODE)
    full = gpus_per_node or (None if rows[0].nodes is not None else GPUS_PER_NODE)
    if full is None and is_of_one_node(rows):
        full = GPUS_PER_NODE
    crowded = next((point for point in points if full is not None and point.local > full), None)
    if crowded is not None:
        raise UsageError(
            f"{what}: {crowded.gpus} GPUs on {crowded.nodes} nodes are more than --gpus-per-node "
            f"{full}; raise it"
        )
    return make_series(name, points, gpus_per_node=full, unit=units[0] or "1/s", link=rows[0].link)


def is_of_one_node(rows: Sequence[MeasuredRow]) -> bool:
    """Whether a node that is not full may have been measured: nothing says how many GPUs a node
    holds."""
    return all(row.nodes == 1 for row in rows) and max(row.gpus for row in rows) < GPUS_PER_NODE


def _points(what: str, rows: Sequence[MeasuredRow], gpus_per_node: int) -> list[MeasuredCount]:
    launches: dict[tuple[int, int], list[MeasuredRow]] = {}
    for row in rows:
        if row.nodes is not None:
            nodes = row.nodes
        else:
            nodes = -(-row.gpus // gpus_per_node)
        launches.setdefault((row.gpus, nodes), []).append(row)
    points = []
    for (gpus, nodes), members in launches.items():
        works = {member.work for member in members}
        if len(works) > 1:
            raise UsageError(
                f"{what}: launches on {gpus} GPUs differ in samples or tokens of a step"
            )
        points.append(
            MeasuredCount(gpus, nodes, tuple(member.rate for member in members), works.pop())
        )
    if len({gpus for gpus, _ in launches}) < len(launches):
        twice = next(
            gpus for gpus, _ in launches if sum(other == gpus for other, _ in launches) > 1
        )
        raise UsageError(
            f"{what}: {twice} GPUs on several counts of nodes", hint="one placement a series"
        )
    return points
