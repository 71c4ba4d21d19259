"""Parquet: a run as three tables for a warehouse (cells, launches, steps), with types, and units in
the names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.analysis.kinds import AnySummary
from torchscale.errors import OutputError, UsageError
from torchscale.features.export.formats.store import RunToStore, Stored, missing_library
from torchscale.report.formats.columns import COLUMNS
from torchscale.report.kinds import report_kind
from torchscale.report.text.figures import (
    ENERGY,
    PEAK_ALLOCATED,
    STEP_MEAN,
    STEP_P50,
    STEP_P95,
    STEP_P99,
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
)
from torchscale.report.values import only_if
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_path, make_directory

if TYPE_CHECKING:
    import pyarrow

Row = Mapping[str, object]
_ROWS = 65_536
"""Number of rows of a row group: 5 MB of steps, so that memory does not grow with the run."""
_MICROSECONDS = "timestamp[us, tz=UTC]"

_TYPES: Mapping[type, str] = {str: "string", int: "int64", float: "double", bool: "bool"}
CELLS: Mapping[str, str] = {
    "run": "string",
    **{column.name: _TYPES[column.kind] for column in COLUMNS},
}
"""Column → type: those of ``summary.csv``, after the run's name."""
_OF_A_LAUNCH = (
    *(quantity.csv for quantity in (THROUGHPUT, THROUGHPUT_PER_DEVICE, TOKENS)),
    *(quantity.csv for quantity in (STEP_MEAN, STEP_P50, STEP_P95, STEP_P99)),
    *(f"{THROUGHPUT.csv}_low", f"{THROUGHPUT.csv}_high"),
    *(PEAK_ALLOCATED.csv, ENERGY.csv, "outcome"),
)
"""Columns of ``summary.csv`` that a single launch has."""
LAUNCHES: Mapping[str, str] = {
    **{
        "run": "string",
        "cell_id": "string",
        "kind": "string",
        "launch": "int64",
        "state": "string",
    },
    **{
        "reason": "string",
        "started_at": _MICROSECONDS,
        "seconds": "double",
        "exit_code": "int64",
        "grouped": "bool",
    },
    **{name: CELLS[name] for name in _OF_A_LAUNCH},
}
_STEP_PHASES = (
    "data_wait",
    "forward",
    "backward",
    "optimizer",
    "bubble",
    "exposed_sync",
    "buffer_sync",
    "blocked",
)
STEPS: Mapping[str, str] = {
    **{"run": "string", "cell_id": "string", "launch": "int64", "rank": "int64", "step": "int64"},
    **{
        "step_seconds": "double",
        **{f"{phase}_seconds": "double" for phase in _STEP_PHASES},
        "loss": "double",
    },
}


@dataclass(frozen=True)
class _Table:
    name: str
    columns: Mapping[str, str]
    rows: Iterable[Row]


def store(run: RunToStore, place: str | None) -> Stored:
    """Write ``cells.parquet``, ``launches.parquet`` and ``steps.parquet`` to a directory, each
    replaced as a whole.

    Raises:
        MachineError: pyarrow is not installed.
        UsageError: no directory is named.
        OutputError: it cannot be written.
    """
    try:
        import pyarrow  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise missing_library("parquet", "pyarrow") from error
    if place is None:
        raise UsageError(
            "--to parquet writes three files: which directory?", hint="name it with --output DIR"
        )
    directory = Path(place)
    make_directory(directory)
    folder = RunFolder(run.directory, run.summary.experiment)
    tables = (
        _Table("cells", CELLS, _cells(run)),
        _Table("launches", LAUNCHES, _launches(run, folder)),
        _Table("steps", STEPS, _steps(run, folder)),
    )
    counts = {table.name: _write(directory / f"{table.name}.parquet", table) for table in tables}
    notes = only_if(
        not counts["steps"],
        "steps.parquet has no rows: no launch kept its steps (benchmark.log_step_times)",
    )
    return Stored(
        str(directory),
        tuple(f"{name}.parquet: {count} rows" for name, count in counts.items()),
        notes,
    )


def _write(path: Path, table: _Table) -> int:
    """The file, in row groups; returns its rows."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    schema = pyarrow.schema(
        [pyarrow.field(name, _type(kind)) for name, kind in table.columns.items()]
    )
    rows, count = iter(table.rows), 0
    try:
        with (
            atomic_path(path) as temporary,
            parquet.ParquetWriter(temporary, schema, compression="zstd") as writer,
        ):
            while group := list(islice(rows, _ROWS)):
                writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
                count += len(group)
    except pyarrow.ArrowException as error:
        raise OutputError(f"cannot write {path}: {error}") from error
    return count


def _type(kind: str) -> pyarrow.DataType:
    import pyarrow  # noqa: PLC0415 - an extra

    if kind == _MICROSECONDS:
        return pyarrow.timestamp("us", tz="UTC")
    return pyarrow.type_for_alias(kind)


def _cells(run: RunToStore) -> Iterator[Row]:
    for summary in run.summary.in_plan_order:
        row = report_kind(summary.cell.kind).csv_row(summary)
        yield {
            "run": run.exported.name,
            **{name: _as(CELLS[name], value) for name, value in row.items()},
        }


def _launches(run: RunToStore, folder: RunFolder) -> Iterator[Row]:
    for summary, record in _records(run, folder):
        figures = _launch_row(summary, record)
        yield {
            "run": run.exported.name,
            "cell_id": record.cell_id,
            "kind": summary.cell.kind,
            "launch": record.launch,
            "state": record.state.value,
            "reason": record.reason or None,
            "started_at": _moment(record.started_at),
            "seconds": record.seconds,
            "exit_code": record.exit_code,
            "grouped": record.grouped,
            **{name: _as(CELLS[name], figures.get(name)) for name in _OF_A_LAUNCH},
        }


def _launch_row(summary: AnySummary, record: LaunchRecord) -> Mapping[str, object]:
    """The row of ``summary.csv`` that the launch alone would have."""
    from torchscale.analysis.summary.run import summarize_any  # noqa: PLC0415 - large, and only this table needs it

    alone = summarize_any(CellRun(PlannedCell(cell=summary.cell), (record,)), 1)
    return report_kind(summary.cell.kind).csv_row(alone)


def _steps(run: RunToStore, folder: RunFolder) -> Iterator[Row]:
    for summary, record in _records(run, folder):
        result = as_kind(record.payload, TrainingResult)
        if result is None:
            continue
        for rank in result.ranks:
            for sample in folder.steps(summary.cell, record.launch, rank.rank):
                yield {
                    "run": run.exported.name,
                    "cell_id": record.cell_id,
                    "launch": record.launch,
                    "rank": rank.rank,
                    "step": sample.step,
                    "step_seconds": sample.seconds,
                    **{f"{phase}_seconds": getattr(sample, phase) for phase in _STEP_PHASES},
                    "loss": sample.loss,
                }


def _records(run: RunToStore, folder: RunFolder) -> Iterator[tuple[AnySummary, LaunchRecord]]:
    """Every launch that can be read, with its cell; one cell's are in memory at a time."""
    for summary in run.summary.in_plan_order:
        cell_run, _ = folder.load_cell(PlannedCell(cell=summary.cell))
        for record in cell_run.launches:
            yield summary, record


def _as(kind: str, value: object) -> object:
    """A column that holds text and switches (``compile``) is text; empty text was not measured."""
    if value is None or value == "":
        return None
    if kind == "string":
        return str(value)
    return value


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return moment
