"""Files and directories, as a user names them, become one :class:`Trace`."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from torchscale.errors import TraceError
from torchscale.schema.profiles.span import RankTrace, Trace
from torchscale.traces.kineto.reader import UNNAMED, is_kineto, read_kineto
from torchscale.traces.kineto.stream import MAX_HEADER_BYTES
from torchscale.traces.nsys.database import is_sqlite
from torchscale.traces.nsys.reader import read_nsys
from torchscale.traces.soundness import sound

REPORT_SUFFIX = ".nsys-rep"
_PEEK_BYTES = 1 << 20
"""The header before ``traceEvents`` is far shorter, but for a job of many process groups, which it
lists."""
_MAX_UNPACKED_BYTES = 1 << 30
_MAX_UNPACKED_RATIO = 100
"""Recordings of torch.profiler unpack to 15 to 25 times their size. What unpacks to more than a
gigabyte and to more than a hundred times its size was made to fill memory."""
_MAX_MEMBERS = 4096
"""Maximum number of members of an archive; a hostile one can hold any number."""
_MAX_SHOWN = 16
"""Missing ranks, and files of one rank, that are named; there may be any number of them."""
_MAX_PROBLEM = 200
"""Characters: an error may quote what it could not read."""
_JSON_SUFFIXES = (".json", ".json.gz")
_OURS = ".perfetto.json.gz"
"""Timelines that torchscale wrote; they are not recordings."""
_ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")


def find_recordings(paths: list[Path]) -> list[Path]:
    """The recordings among files and, recursively, in directories; an export stands for the report
    beside it.

    Raises:
        TraceError: a path does not exist, or a directory holds no recording.
    """
    recordings: list[Path] = []
    for path in paths:
        if path.is_file():
            recordings.append(path)
        elif path.is_dir():
            inside = sorted(
                item for item in path.rglob("*") if item.is_file() and _looks_like_recording(item)
            )
            if not inside:
                raise TraceError(
                    f"{path}: no recording in this directory",
                    hint="expected .nsys-rep, .sqlite, .json, .json.gz or .tar.gz files",
                )
            recordings += inside
        elif path.exists():
            raise TraceError(
                f"{path}: neither a regular file nor a directory",
                hint="write what a pipe or a device holds to a file first",
            )
        else:
            raise TraceError(f"{path}: no such file or directory")
    exported = {path.with_suffix(REPORT_SUFFIX) for path in recordings if path.suffix == ".sqlite"}
    unique = dict.fromkeys(path for path in recordings if path not in exported)
    return list(unique)


def read_recordings(paths: list[Path]) -> Trace:
    """All ranks in these files (:func:`find_recordings` finds them; reports are to be exported
    first).

    Raises:
        TraceError: a file cannot be read, two hold the same rank, or recorders are mixed.
    """
    exports = [path for path in paths if _is_export(path)]
    read, notes = _read_exports(exports)
    recorders = {"nsys"} if exports else set()
    for path in paths:
        if path not in exports:
            read += _read_kineto(path)
            recorders.add("torch.profiler")
    ranks = []
    for rank in read:
        checked, about_times = sound(rank, UNNAMED)
        ranks.append(checked)
        notes += [note for note in about_times if note not in notes]
    if not ranks:
        raise TraceError("no recording to analyze")
    if len(recorders) > 1:
        raise TraceError(
            "recordings of nsys and of torch.profiler are mixed",
            hint="analyze each on its own; they share no clock",
        )
    if any(rank.rank == UNNAMED for rank in ranks):
        ranks = [_only_rank(ranks)]
        notes.append("the recording names no rank; it is taken as the only one, rank 0")
    ranks = _distinct(sorted(ranks, key=lambda rank: rank.rank))
    declared = {rank.world_size for rank in ranks if rank.world_size is not None}
    if len(declared) == 1 and len(ranks) < (size := declared.pop()):
        here = {rank.rank for rank in ranks}
        missing = itertools.islice(
            (number for number in range(size) if number not in here), _MAX_SHOWN
        )
        notes.append(
            f"{len(ranks)} of {size:,} ranks are here; missing: {', '.join(map(str, missing))}"
        )
    return Trace(tuple(ranks), recorders.pop(), tuple(notes))


def _only_rank(ranks: list[RankTrace]) -> RankTrace:
    """The single recording, as rank 0.

    Raises:
        TraceError: there are others, or it is one of several ranks.
    """
    unnamed = next(rank for rank in ranks if rank.rank == UNNAMED)
    if len(ranks) > 1 or (unnamed.world_size or 1) > 1:
        raise TraceError(
            f"{unnamed.source}: neither the trace nor its file name says which of several ranks "
            "recorded it",
            hint="rename it so that it contains rank0, rank1 …",
        )
    return replace(unnamed, rank=0, world_size=1)


def _distinct(ranks: list[RankTrace]) -> list[RankTrace]:
    """The ranks.

    Raises:
        TraceError: one is there twice.
    """
    numbers = [rank.rank for rank in ranks]
    if len(set(numbers)) == len(numbers):
        return ranks
    twice = next(number for number in numbers if numbers.count(number) > 1)
    sources = [rank.source for rank in ranks if rank.rank == twice]
    which = ", ".join(sources[:_MAX_SHOWN])
    if len(sources) > _MAX_SHOWN:
        which = f"{which} and {len(sources) - _MAX_SHOWN} more"
    raise TraceError(
        f"rank {twice} is there more than once: {which}",
        hint="name the recordings of one run, one a rank",
    )


def _is_export(path: Path) -> bool:
    if path.name.endswith(_ARCHIVE_SUFFIXES):
        return False
    with _as_trace_errors(str(path)), _opened(path) as stream:
        return is_sqlite(stream.read(_PEEK_BYTES))


def _read_exports(paths: list[Path]) -> tuple[list[RankTrace], list[str]]:
    """The ranks in exports of nsys, which are read together: a communicator has ranks in
    several."""
    if not paths:
        return [], []
    with _as_trace_errors(", ".join(map(str, paths))):
        ranks, notes = read_nsys(paths)
    return list(ranks), list(notes)


def _read_kineto(path: Path) -> list[RankTrace]:
    """The ranks in a trace of torch.profiler, or in an archive of such."""
    with _as_trace_errors(str(path)):
        if path.name.endswith(_ARCHIVE_SUFFIXES):
            ranks = []
            for name, file in _members(path):
                with _decompressed(name, file) as stream:
                    ranks.append(read_kineto(stream, f"{path.name}:{name}"))
            return ranks
        if path.suffix == REPORT_SUFFIX:
            raise TraceError(f"{path}: a report of nsys, not exported", hint=export_hint(path))
        if not _is_trace(path):
            raise TraceError(
                f"{path}: neither a trace of torch.profiler nor an export of nsys",
                hint="expected .nsys-rep, .sqlite, .json, .json.gz or .tar.gz",
            )
        with _opened(path) as stream:
            return [read_kineto(stream, path.name)]


@contextmanager
def _as_trace_errors(where: str) -> Iterator[None]:
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


def _looks_like_recording(path: Path) -> bool:
    if path.name.endswith(_OURS):
        return False
    if path.suffix in (".sqlite", REPORT_SUFFIX) or path.name.endswith(_ARCHIVE_SUFFIXES):
        return True
    if not path.name.endswith(_JSON_SUFFIXES):
        return False
    try:
        return _is_trace(path)
    except (OSError, EOFError, zlib.error):
        return False


def _is_trace(path: Path) -> bool:
    with _opened(path) as stream:
        beginning = stream.read(_PEEK_BYTES)
        if beginning.lstrip()[:1] == b"{" and not is_kineto(beginning):
            beginning += stream.read(MAX_HEADER_BYTES)
        return is_kineto(beginning)


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
            if count >= _MAX_MEMBERS:
                raise TraceError(f"{path}: more than {_MAX_MEMBERS} entries")
            unpacked += max(0, member.size)
            _check_ratio(str(path), unpacked, path.stat().st_size)
            name = PurePosixPath(member.name).name
            if not member.isfile() or not name.endswith(_JSON_SUFFIXES) or name.startswith("._"):
                continue
            file = archive.extractfile(member)
            if file is not None:
                count_of_traces += 1
                yield name, cast(BinaryIO, file)
    if not count_of_traces:
        raise TraceError(f"{path}: no .json or .json.gz in this archive")
