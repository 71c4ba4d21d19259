"""Recordings of ranks in files: what one process reads and another analyzes, and what would not fit
in memory together.

A rank is two files: ``N.json`` with its names and lengths, ``N.columns`` with the bytes of its
columns one after the other, each in the fewest bytes that hold its values. Collectives and steps,
which all ranks are compared by, are loaded at once; the columns of spans when they are asked for,
and only those of the rank that was asked for last stay in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import OutputError
from torchscale.features.trace.span import CollectiveSpans, CpuUse, RankTrace, Spans, Steps

_TABLES = (("spans", Spans), ("collectives", CollectiveSpans), ("steps", Steps))
_NAMES = ("ops", "groups", "peers_within_group")
"""What of collectives is no column."""
_PLAIN = ("rank", "host", "pid", "on_device", "backend", "world_size", "source", "peak_bytes")
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)


@dataclass(frozen=True)
class _Column:
    """Where a column is: values are those stored, of type ``stored``, plus ``least``."""

    offset: int
    count: int
    least: int
    stored: str
    kind: str

    def read(self, path: Path) -> NDArray[Any]:
        """The column.

        Raises:
            OSError: the file cannot be read.
        """
        values = np.fromfile(path, self.stored, self.count, offset=self.offset)
        # Differences of 64-bit numbers wrap around, and back again.
        whole = values.astype(np.uint64) + np.uint64(self.least & _MASK)
        return np.asarray(whole.astype(np.int64).astype(self.kind))


_MASK = (1 << 64) - 1


class StoredSpans(Spans):
    """Spans whose columns are loaded when they are asked for."""

    def __init__(self, path: Path, columns: dict[str, _Column], shelf: Shelf) -> None:
        object.__setattr__(self, "_stored", (path, columns, shelf))

    def __len__(self) -> int:
        columns: dict[str, _Column] = self._stored[1]
        return columns["start"].count

    def __getattr__(self, name: str) -> NDArray[Any]:
        """A column, which is no attribute of the object."""
        if name.startswith("_"):
            raise AttributeError(name)
        path, columns, shelf = self._stored
        loaded = shelf.of(path)
        if name not in loaded:
            loaded[name] = columns[name].read(path)
        return np.asarray(loaded[name])


class Shelf:
    """Columns of the rank that was asked for last."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._columns: dict[str, NDArray[Any]] = {}

    def of(self, path: Path) -> dict[str, NDArray[Any]]:
        """What is loaded of a file; of others it is let go."""
        if path != self._path:
            self._path, self._columns = path, {}
        return self._columns


def store_rank(trace: RankTrace, directory: Path, number: int) -> None:
    """Write a rank to files.

    Raises:
        OutputError: there is no space for them, or the directory cannot be written.
    """
    described: dict[str, Any] = {name: getattr(trace, name) for name in _PLAIN}
    described["names"] = trace.names
    if trace.cpu_use is not None:
        described["cpu_use"] = [trace.cpu_use.threads, sorted(trace.cpu_use.cpus)]
    described |= {name: getattr(trace.collectives, name) for name in _NAMES}
    with _kept(directory):
        with (directory / f"{number}.columns").open("wb") as file:
            for table, kind in _TABLES:
                content = getattr(trace, table)
                described[table] = {
                    field.name: _write(file, getattr(content, field.name))
                    for field in fields(kind)
                    if field.name not in _NAMES
                }
        (directory / f"{number}.json").write_text(json.dumps(described))


def write_columns(files: Mapping[str, bytes], directory: Path) -> None:
    """Write files of ranks that were stored elsewhere.

    Raises:
        OutputError: as :func:`store_rank`.
    """
    with _kept(directory):
        for name, content in files.items():
            (directory / name).write_bytes(content)


@contextmanager
def _kept(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{directory}: {error.strerror}: columns of the recordings cannot be kept there",
            hint="set TMPDIR to a directory with more space: a tenth of the size of the recordings",
        ) from error


def load_rank(directory: Path, number: int, shelf: Shelf, names: dict[str, str]) -> RankTrace:
    """A rank whose spans stay in files for as long as the directory is there.

    Args:
        directory: Where :func:`store_rank` wrote it.
        number: Its number there.
        shelf: Holds the columns that are loaded.
        names: Names that are known, so that those of many ranks are kept once.
    """
    described = json.loads((directory / f"{number}.json").read_text())
    path = directory / f"{number}.columns"
    columns = {
        table: {name: _Column(*place) for name, place in described[table].items()}
        for table, _ in _TABLES
    }
    collectives = {name: column.read(path) for name, column in columns["collectives"].items()}
    steps = {name: column.read(path) for name, column in columns["steps"].items()}
    cpu_use = None
    if "cpu_use" in described:
        threads, cpus = described["cpu_use"]
        cpu_use = CpuUse(threads, frozenset(cpus))

    def shared(texts: list[str]) -> tuple[str, ...]:
        return tuple(names.setdefault(text, text) for text in texts)

    return RankTrace(
        **{name: described[name] for name in _PLAIN},
        names=shared(described["names"]),
        spans=StoredSpans(path, columns["spans"], shelf),
        collectives=CollectiveSpans(
            **collectives,
            ops=shared(described["ops"]),
            groups=shared(described["groups"]),
            peers_within_group=described["peers_within_group"],
        ),
        steps=Steps(**steps),
        cpu_use=cpu_use,
    )


def _write(file: BinaryIO, values: NDArray[Any]) -> tuple[int, int, int, str, str]:
    """Append a column; returns the fields of its :class:`_Column`."""
    offset, least, most = file.tell(), 0, 0
    if len(values):
        least, most = int(values.min()), int(values.max())
    stored = next(width for width in _WIDTHS if most - least <= np.iinfo(width).max)
    shifted = values.astype(np.int64).view(np.uint64) - np.uint64(least & _MASK)
    shifted.astype(stored).tofile(file)
    return offset, len(values), least, np.dtype(stored).str, values.dtype.str
