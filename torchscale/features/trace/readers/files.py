"""Files of recordings: what each is, and the traces of torch.profiler in it, unpacked."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from torchscale.errors import TraceError
from torchscale.features.trace.readers.kineto.forms import Header
from torchscale.features.trace.readers.kineto.processes import label_of
from torchscale.features.trace.readers.kineto.reader import is_kineto, read_kineto
from torchscale.features.trace.readers.kineto.stream import (
    EVENTS_KEY,
    MAX_HEADER_BYTES,
    header_before,
)
from torchscale.features.trace.readers.nsys.export_file import is_sqlite
from torchscale.features.trace.span import RankTrace

REPORT_SUFFIX = ".nsys-rep"
_PEEK_BYTES = 1 << 20
"""The header before ``traceEvents`` is far shorter, but for a job of many process groups, which it
lists."""
_HEADER_BYTES = 1 << 16
"""Most headers are shorter."""
_SQLITE_BYTES = 64
"""What a SQLite database begins with is shorter."""
_MAX_UNPACKED_BYTES = 1 << 30
_MAX_UNPACKED_RATIO = 100
"""Recordings of torch.profiler unpack to 15 to 25 times their size. What unpacks to more than a
gigabyte and to more than a hundred times its size was made to fill memory."""
MAX_MEMBERS = 4096
"""Maximum number of members of an archive; a hostile one can hold any number."""
_MAX_PROBLEM = 200
"""Characters: an error may quote what it could not read."""
_TEXT_PID = re.compile(rb'"pid"\s*:\s*"([^"]{1,80})"')
JSON_SUFFIXES = (".json", ".json.gz")
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")


def is_export(path: Path) -> bool:
    """Whether a file is an export of nsys."""
    if path.name.endswith(ARCHIVE_SUFFIXES):
        return False
    with as_trace_errors(str(path)), _opened(path) as stream:
        return is_sqlite(stream.read(_SQLITE_BYTES))


def read_kineto_file(path: Path, *, with_shapes: bool = False) -> Iterator[RankTrace]:
    """The ranks in a trace of torch.profiler, or in an archive of such; ``with_shapes`` names
    operators with the shapes of their inputs.

    Raises:
        TraceError: it is neither, or damaged.
    """
    with as_trace_errors(str(path)):
        if path.name.endswith(ARCHIVE_SUFFIXES):
            for name, file in _members(path):
                with _decompressed(name, file) as stream:
                    yield from read_kineto(stream, f"{path.name}:{name}", with_shapes=with_shapes)
            return
        if path.suffix == REPORT_SUFFIX:
            raise TraceError(f"{path}: a report of nsys, not exported", hint=export_hint(path))
        if not is_trace(path):
            raise TraceError(
                f"{path}: neither a trace of torch.profiler nor an export of nsys",
                hint="expected .nsys-rep, .sqlite, .json, .json.gz or .tar.gz",
            )
        with _opened(path) as stream:
            yield from read_kineto(stream, path.name, with_shapes=with_shapes)


@contextmanager
def as_trace_errors(where: str) -> Iterator[None]:
    """What reading a damaged file can raise, as errors that name it."""
    try:
        yield
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise TraceError(
            f"{where}: cannot be read: {error}", hint="the file may be damaged or cut off"
        ) from error
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        # Whatever a damaged file makes of its parts: each reader checks what it knows, and none
        # knows all.
        problem = f"{type(error).__name__}: {error}"[:_MAX_PROBLEM]
        raise TraceError(
            f"{where}: not a sound recording ({problem})", hint="the file may be damaged"
        ) from error


def export_hint(report: Path) -> str:
    """How to export a report by hand."""
    return f"nsys export --type=sqlite -f true -o {report.with_suffix('.sqlite')} {report}"


def is_trace(path: Path) -> bool:
    """Whether a file is a trace of torch.profiler."""
    with _opened(path) as stream:
        beginning = stream.read(_PEEK_BYTES)
        if beginning.lstrip()[:1] == b"{" and not is_kineto(beginning):
            beginning += stream.read(MAX_HEADER_BYTES)
        return is_kineto(beginning)


def read_header(path: Path) -> Header | None:
    """What stands before the first event of a trace of torch.profiler; ``None`` where it cannot be
    read.

    Raises:
        TraceError: the file cannot be read.
    """
    with as_trace_errors(str(path)), _opened(path) as stream:
        return header_before(_up_to_events(stream))


def names_ranks(path: Path) -> bool:
    """Whether the first events of a trace of torch.profiler have names of ranks before the numbers
    of processes, as files do that several ranks were merged into.

    Raises:
        TraceError: the file cannot be read.
    """
    with as_trace_errors(str(path)), _opened(path) as stream:
        text = _up_to_events(stream) + stream.read(_HEADER_BYTES)
        pids = _TEXT_PID.findall(text)
        return any(label_of(pid.decode(errors="replace")) for pid in pids)


def _up_to_events(stream: BinaryIO) -> bytes:
    text = stream.read(_HEADER_BYTES)
    while EVENTS_KEY.search(text) is None and len(text) < MAX_HEADER_BYTES:
        more = stream.read(_PEEK_BYTES)
        if not more:
            break
        text += more
    return text


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as raw, _decompressed(path.name, raw) as stream:
        yield stream


@contextmanager
def _decompressed(name: str, raw: BinaryIO) -> Iterator[BinaryIO]:
    if name.endswith(".gz"):
        with _Unpacked(name, raw) as file:
            yield cast(BinaryIO, io.BufferedReader(file, 1 << 20))
    else:
        yield raw


class _Unpacked(io.RawIOBase):
    """The content of a gzip file; no more of it than a recording can have."""

    def __init__(self, name: str, packed: BinaryIO) -> None:
        self._name, self._packed = name, packed
        self._file = gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - as in the base class
        """Read on.

        Raises:
            TraceError: it unpacks to more than any recording.
        """
        count = self._file.readinto(buffer)
        _check_ratio(self._name, self._file.tell(), self._packed.tell())
        return count


def _check_ratio(name: str, unpacked: int, packed: int) -> None:
    if unpacked > max(_MAX_UNPACKED_BYTES, _MAX_UNPACKED_RATIO * packed):
        raise TraceError(
            f"{name}: {packed:,} bytes unpack to more than {unpacked:,}, which no recording does",
            hint="record it again, or leave this file out",
        )


def _members(path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """The traces of an archive, read in place: nothing is unpacked to the disk."""
    count_of_traces = unpacked = 0
    with tarfile.open(path, "r:*") as archive:
        for count, member in enumerate(archive):
            if count >= MAX_MEMBERS:
                raise TraceError(f"{path}: more than {MAX_MEMBERS} entries")
            unpacked += max(0, member.size)
            _check_ratio(str(path), unpacked, path.stat().st_size)
            name = PurePosixPath(member.name).name
            if not member.isfile() or not name.endswith(JSON_SUFFIXES) or name.startswith("._"):
                continue
            file = archive.extractfile(member)
            if file is not None:
                count_of_traces += 1
                yield name, cast(BinaryIO, file)
    if not count_of_traces:
        raise TraceError(f"{path}: no .json or .json.gz in this archive")
