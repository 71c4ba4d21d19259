"""Tables of measured throughput, from torchscale or elsewhere: CSV files, read row by row."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.features.decide.forecast.measured_series import (
    GPUS_PER_NODE,
    MeasuredRow,
    is_of_one_node,
    series_of_rows,
)
from torchscale.features.decide.forecast.rates import (
    batch_column,
    rate_of_samples,
    shown,
    throughput_column,
)
from torchscale.features.decide.forecast.series import MeasuredSeries
from torchscale.schema.base import LARGEST, SMALLEST
from torchscale.util.files import read_bounded
from torchscale.util.text import strip_control

MAX_GPUS = 1_000_000
"""Ten times the largest training machine; a larger number is a typing error or another column."""
_MAX_BYTES = 16 << 20
_MAX_ROWS = 10_000
"""More rows than any benchmark has launches; a fit of each series takes about a millisecond."""
_COLUMNS = "gpus,throughput[,nodes,launch,samples|tokens,series,unit,link]"
_ALIASES = {"series_id": "series", "gpu_count": "gpus", "num_gpus": "gpus", "world_size": "gpus"}
_SEPARATORS = (",", ";", "\t")


def read_table(
    path: Path, gpus_per_node: int | None = None
) -> tuple[list[MeasuredSeries], list[str]]:
    """The series of a CSV file, and sentences on what was assumed.

    Args:
        path: A file with the columns ``gpus`` and ``throughput`` (per second, of all GPUs), and
            optionally ``nodes``, ``launch``, ``samples`` or ``tokens`` (of a step, over all GPUs),
            ``series``, ``unit`` and ``link``; others are ignored. A unit per GPU, such as
            ``samples/s/GPU``, is multiplied by the count.
        gpus_per_node: GPUs of a full node; by default the fullest of the column ``nodes``, or 8
            where there is none or all is on part of one node.

    Raises:
        UsageError: it cannot be read, or a line is wrong; the message names the line, the value and
            what was expected.
    """
    rows = list(_rows(path))
    if not rows:
        raise UsageError(
            f"{path}: no measurements", hint=f"write a line for each launch under {_COLUMNS}"
        )
    said = dict.fromkeys(row.multiplied for row in rows if row.multiplied)
    notes = [f"{path}: {text}" for text in said]
    by_series: dict[str, list[MeasuredRow]] = {}
    for row in rows:
        by_series.setdefault(row.series, []).append(row)
    if gpus_per_node is None and any(row.nodes is None for row in rows):
        notes.append(
            f"{path} does not say how many nodes: {GPUS_PER_NODE} GPUs a node assumed "
            "(--gpus-per-node)"
        )
    elif gpus_per_node is None and any(is_of_one_node(members) for members in by_series.values()):
        notes.append(
            f"where one node was measured, {GPUS_PER_NODE} GPUs a node are assumed "
            "(--gpus-per-node)"
        )
    series = [
        series_of_rows(path, name, members, gpus_per_node) for name, members in by_series.items()
    ]
    if len(series) == 1 and len(series[0].points) < 2:
        only = series[0].points[0].gpus
        raise UsageError(
            f"{path}: one point ({only} GPUs); expected two or more counts of GPUs",
            hint="measure another count",
        )
    return series, notes


def _rows(path: Path) -> Iterator[MeasuredRow]:
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: not text in UTF-8 (byte {error.start})", hint="save it as CSV in UTF-8"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(_SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    names: list[str] = []
    unit, count = "", 0
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not names:
                names, unit = _header(path, cells)
                continue
            count += 1
            where = f"{path}, line {reader.line_num}"
            if count > _MAX_ROWS:
                raise UsageError(
                    f"{where}: more than {_MAX_ROWS:,} measurements",
                    hint="leave out series or launches",
                )
            if len(cells) != len(names):
                raise UsageError(
                    f"{where}: {len(cells)} values, but the header names {len(names)} columns"
                )
            values = dict(zip(names, map(str.strip, cells), strict=True))
            values["unit"] = values.get("unit") or unit
            yield _row(where, reader.line_num, values)
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: not CSV ({error})") from error


def _header(path: Path, cells: Sequence[str]) -> tuple[list[str], str]:
    """Names of the columns, and the unit that the name of the throughput gives."""
    names = [_ALIASES.get(name, name) for name in (cell.strip().lower() for cell in cells)]
    place, unit = throughput_column(str(path), names) or (None, "")
    if place is not None:
        names[place] = "throughput"
    for name in ("gpus", "throughput"):
        if name not in names:
            raise UsageError(
                f"{path}: no column {name}", hint=f"the first line names the columns: {_COLUMNS}"
            )
    twice = next((name for place, name in enumerate(names) if name and name in names[:place]), None)
    if twice is not None:
        raise UsageError(f"{path}: two columns {shown(twice)}", hint="leave one of them out")
    return names, unit


def _row(where: str, line: int, values: Mapping[str, str]) -> MeasuredRow:
    gpus = _integer(where, "gpus", values["gpus"])
    nodes = None
    if values.get("nodes"):
        nodes = _integer(where, "nodes", values["nodes"])
    if nodes is not None and nodes > gpus:
        raise UsageError(f"{where}: nodes {nodes} exceeds gpus {gpus}; every node has a GPU")
    works = [name for name in ("samples", "tokens") if values.get(name)]
    if len(works) > 1:
        raise UsageError(
            f"{where}: samples and tokens; expected one of them, in the unit of throughput"
        )
    batch = None
    name = batch_column(values)
    if name:
        batch = (name, _number(where, name, values[name]))
    throughput = _number(where, "throughput", values["throughput"])
    rate = rate_of_samples(where, throughput, values["unit"], batch, gpus=gpus, nodes=nodes)
    work, unit = None, strip_control(rate.unit)
    if works:
        work = _number(where, works[0], values[works[0]])
        unit = unit or f"{works[0]}/s"
    return MeasuredRow(
        line=line,
        series=strip_control(values.get("series", "")),
        gpus=gpus,
        nodes=nodes,
        launch=values.get("launch", ""),
        rate=rate.value,
        unit=unit,
        work=work,
        link=values.get("link") or None,
        multiplied=rate.multiplied,
    )


def _integer(where: str, name: str, text: str) -> int:
    value = _number(where, name, text)
    if value != int(value) or not 1 <= value <= MAX_GPUS:
        raise UsageError(
            f"{where}: {name} {shown(text)}: expected a whole number from 1 to {MAX_GPUS:,}"
        )
    return int(value)


def _number(where: str, name: str, text: str) -> float:
    if not text:
        raise UsageError(f"{where}: {name} is empty", hint="leave out lines without a measurement")
    try:
        if "_" not in text:
            value = float(text)
        else:
            value = math.nan
    except ValueError:
        value = math.nan
    if value > LARGEST:
        raise UsageError(f"{where}: {name} {shown(text)}: expected at most {LARGEST:g}")
    if not value >= SMALLEST:
        raise UsageError(
            f"{where}: {name} {shown(text)}: expected a number above 0",
            hint="write plain numbers, such as 1234.5",
        )
    return value
