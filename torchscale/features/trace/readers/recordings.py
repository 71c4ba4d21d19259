"""Files and directories, as a user names them, become one :class:`Trace`."""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchscale.errors import TraceError
from torchscale.features.trace.readers.files import (
    ARCHIVE_SUFFIXES,
    JSON_SUFFIXES,
    REPORT_SUFFIX,
    as_trace_errors,
    is_export,
    is_trace,
    read_kineto_file,
)
from torchscale.features.trace.readers.kineto.reader import UNNAMED
from torchscale.features.trace.readers.nsys.reader import ranks_of_run, read_nsys
from torchscale.features.trace.readers.nsys.stored import load_process
from torchscale.features.trace.readers.reader_pool import LocalReaders, Readers
from torchscale.features.trace.readers.selection import (
    RankRanges,
    RankSelection,
    choose_ranks,
    described_ranks,
    groups_and_nodes,
)
from torchscale.features.trace.readers.soundness import sound
from torchscale.features.trace.readers.stored import Shelf, load_rank, store_rank
from torchscale.features.trace.span import RankTrace, Trace

_MAX_SHOWN = 16
"""Missing ranks, and files of one rank, that are named; there may be any number of them."""
DEFAULT_MEMORY = 1 << 30
"""Bytes. 1,024 ranks of 3 MB need less in memory than this for their spans."""
_OURS = ".perfetto.json.gz"
"""Timelines that torchscale wrote; they are not recordings."""


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


@dataclass(frozen=True)
class ReadOptions:
    """How recordings are read.

    Attributes:
        directory: Where columns may be kept in files for as long as the trace is used; ``None``
            keeps all in memory and starts no process.
        memory_bytes: About what reading may take, beyond what collectives need: processes that read
            at once, and columns that are not in files.
        ranks: Ranks that are wanted; ``None`` for all.
        sample: How many of them; ``None`` for all.
        on_read: Called with how many of how many files are read.
        with_shapes: Name operators with the shapes of their inputs; only where ``directory`` is
            ``None``.
        readers: Who reads the files where this process is not to.
    """

    directory: Path | None = None
    memory_bytes: int = DEFAULT_MEMORY
    ranks: RankRanges | None = None
    sample: int | None = None
    on_read: Callable[[int, int], None] = lambda _done, _total: None
    with_shapes: bool = False
    readers: Readers = field(default_factory=LocalReaders)

    def directory_for(self, paths: list[Path]) -> Path | None:
        """Where others leave what they read of these files; ``None`` where this process is to read
        them."""
        if self.directory is None or not self.readers.suits(paths, self.memory_bytes):
            return None
        return self.directory


def read_recordings(paths: list[Path], reading: ReadOptions | None = None) -> Trace:
    """All ranks in these files (:func:`find_recordings` finds them; reports are to be exported
    first).

    Raises:
        TraceError: a file cannot be read, two hold the same rank, or recorders are mixed.
        MachineError: a process that read one was ended.
        OutputError: the columns of large recordings find no space in the directory for them.
    """
    reading = reading or ReadOptions()
    exports = [path for path in paths if is_export(path)]
    exported = set(exports)
    others = [path for path in paths if path not in exported]
    recorders = ["nsys"] * bool(exports) + ["torch.profiler"] * bool(others)
    read, notes = _read_exports(exports, reading)
    read, others, choice = _chosen(read, others, reading)
    notes += [choice.note] * bool(choice.note)
    ranks = []
    for rank, about_times in [*map(_sound, read), *_read_kineto(others, reading)]:
        ranks.append(rank)
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
    if not choice.absent:
        notes += _missing(ranks)
    return Trace(tuple(ranks), recorders.pop(), tuple(notes), choice.absent)


def _missing(ranks: list[RankTrace]) -> list[str]:
    """Which ranks of the job were not recorded, if any."""
    declared = {rank.world_size for rank in ranks if rank.world_size is not None}
    if len(declared) != 1 or len(ranks) >= (size := declared.pop()):
        return []
    here = {rank.rank for rank in ranks}
    missing = itertools.islice((number for number in range(size) if number not in here), _MAX_SHOWN)
    return [f"{len(ranks)} of {size:,} ranks are here; missing: {', '.join(map(str, missing))}"]


def _chosen(
    read: list[RankTrace], paths: list[Path], reading: ReadOptions
) -> tuple[list[RankTrace], list[Path], RankSelection]:
    """The ranks of exports and the files of others that are wanted."""
    if reading.ranks is None and reading.sample is None:
        return read, paths, RankSelection()
    if paths and read:
        return read, paths, RankSelection()  # refused later: recorders are mixed
    if paths:
        by_rank, strata = described_ranks(paths)
        choice = choose_ranks(list(by_rank), strata, reading.ranks, reading.sample)
        return read, [by_rank[rank] for rank in choice.ranks], choice
    hosts: dict[str, set[int]] = defaultdict(set)
    for rank in read:
        hosts[rank.source].add(rank.rank)
    nodes = groups_and_nodes((), map(frozenset, hosts.values()))
    choice = choose_ranks([rank.rank for rank in read], nodes, reading.ranks, reading.sample)
    return [rank for rank in read if rank.rank in set(choice.ranks)], paths, choice


def _sound(rank: RankTrace) -> tuple[RankTrace, tuple[str, ...]]:
    return sound(rank, UNNAMED)


def _read_kineto(
    paths: list[Path], reading: ReadOptions
) -> list[tuple[RankTrace, tuple[str, ...]]]:
    """The ranks in traces of torch.profiler, with notes on each."""
    by_others = reading.directory_for(paths)
    if by_others is not None:
        return _read_by_others(paths, by_others, reading)
    shelf, names = Shelf(), dict[str, str]()
    kept = 0
    ranks: list[tuple[RankTrace, tuple[str, ...]]] = []
    for done, path in enumerate(paths, 1):
        for found in read_kineto_file(path, with_shapes=reading.with_shapes):
            rank, notes = _sound(found)
            kept += rank.spans.memory_bytes
            if kept > reading.memory_bytes and reading.directory is not None:
                number = len(ranks)
                store_rank(rank, reading.directory, number)
                rank = load_rank(reading.directory, number, shelf, names)
            ranks.append((rank, notes))
        reading.on_read(done, len(paths))
    return ranks


def _read_by_others(
    paths: list[Path], directory: Path, reading: ReadOptions
) -> list[tuple[RankTrace, tuple[str, ...]]]:
    def on_read(done: int) -> None:
        reading.on_read(done, len(paths))

    shelf, names = Shelf(), dict[str, str]()
    stored = reading.readers.read(paths, directory, reading.memory_bytes, on_read)
    return [
        (load_rank(directory, number, shelf, names), notes)
        for file in stored
        for number, notes in file.ranks
    ]


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
    hint = "name the recordings of one run, one a rank"
    if any(rank.is_of_merged_file for rank in ranks if rank.rank == twice):
        hint = (
            "a file that several ranks were merged into numbers them by itself; merge all ranks of "
            "the job into one file, or give the file of each rank"
        )
    raise TraceError(f"rank {twice} is there more than once: {which}", hint=hint)


def _read_exports(paths: list[Path], reading: ReadOptions) -> tuple[list[RankTrace], list[str]]:
    """The ranks in exports of nsys, which are joined once all are read: a communicator has ranks in
    several."""
    if not paths:
        return [], []
    by_others = reading.directory_for(paths)
    with as_trace_errors(", ".join(map(str, paths))):
        if by_others is not None:
            ranks, notes = _exports_by_others(paths, by_others, reading)
        else:
            ranks, notes = read_nsys(paths)
    return list(ranks), list(notes)


def _exports_by_others(
    paths: list[Path], directory: Path, reading: ReadOptions
) -> tuple[tuple[RankTrace, ...], tuple[str, ...]]:
    def on_read(done: int) -> None:
        reading.on_read(done, len(paths))

    shelf, names = Shelf(), dict[str, str]()
    files = reading.readers.read(paths, directory, reading.memory_bytes, on_read)
    found = [
        load_process(directory, number, shelf, names) for file in files for number, _ in file.ranks
    ]
    return ranks_of_run(found, [note for file in files for note in file.notes])


def _looks_like_recording(path: Path) -> bool:
    if path.name.endswith(_OURS):
        return False
    if path.suffix in (".sqlite", REPORT_SUFFIX) or path.name.endswith(ARCHIVE_SUFFIXES):
        return True
    if not path.name.endswith(JSON_SUFFIXES):
        return False
    try:
        return is_trace(path)
    except (OSError, EOFError, zlib.error):
        return False
