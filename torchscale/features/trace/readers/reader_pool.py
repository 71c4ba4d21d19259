"""Who reads recordings for this process, and the processes that do, each on a core of its own
(``features/trace/readers/rank_reader.py``)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from torchscale.errors import MachineError, TraceError
from torchscale.util.interpreter import module_command

PROCESS_BYTES = 64 << 20
BYTES_PER_BYTE = 0.7
"""Memory of a process that reads, and how much more it takes for each byte of the file, while the
columns of its pieces are joined."""
_BYTES_PER_PROCESS = 48 << 20
"""A core reads so much in the time that a process takes to start, half a second: with less for each
of them one process is as fast."""
_UNPACKED = 15
"""Times by which a recording is larger than its gzip file."""
_LEAST_SECONDS, _LEAST_BYTES_PER_SECOND = 120.0, 1 << 20
"""A file is given up when it takes longer: a core reads some 80 MB a second."""
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_READ_BYTES = 1 << 16


class ReadFile(NamedTuple):
    """What was read of a file.

    Attributes:
        ranks: For each of its ranks the number of what was stored, and notes.
        notes: Notes on all of them.
    """

    ranks: list[tuple[int, tuple[str, ...]]]
    notes: list[str]


class Readers(Protocol):
    """Others that read files for this process."""

    def suits(self, paths: Sequence[Path], memory_bytes: int) -> bool:
        """Whether they are to read these files, and not this process itself."""
        ...

    def read(
        self,
        paths: Sequence[Path],
        directory: Path,
        memory_bytes: int,
        on_read: Callable[[int], None],
    ) -> list[ReadFile]:
        """Read files into ``directory`` (``features/trace/readers/stored.py``).

        Args:
            paths: Files.
            directory: Where the columns of their ranks are written.
            memory_bytes: About what those who read may take.
            on_read: Called with the number of files that are read.

        Raises:
            TraceError: a file cannot be read, the first of several.
            MachineError: one that read ended, or took minutes.
        """
        ...


@dataclass(frozen=True)
class LocalReaders:
    """Processes of this machine, where one alone would take much longer."""

    def suits(self, paths: Sequence[Path], memory_bytes: int) -> bool:
        """Whether there is work, and memory, for several."""
        return count_processes(paths, memory_bytes) > 1

    def read(
        self,
        paths: Sequence[Path],
        directory: Path,
        memory_bytes: int,
        on_read: Callable[[int], None],
    ) -> list[ReadFile]:
        """As :func:`read_in_processes`."""
        return read_in_processes(paths, directory, count_processes(paths, memory_bytes), on_read)


def count_processes(paths: Sequence[Path], memory_bytes: int) -> int:
    """How many processes are to read files: a core each, no more than memory is there for, and only
    where one alone would take much longer; 1 for none but this one."""
    if len(paths) < 2:
        return 1
    sizes = [unpacked_bytes(path) for path in paths]
    each = PROCESS_BYTES + int(BYTES_PER_BYTE * max(sizes))
    bounds = len(os.sched_getaffinity(0)), sum(sizes) // _BYTES_PER_PROCESS, memory_bytes // each
    return max(1, min(len(paths), *bounds))


def unpacked_bytes(path: Path) -> int:
    """About how large a recording is."""
    size = path.stat().st_size
    if path.name.endswith(("gz", "tgz")):
        return size * _UNPACKED
    return size


def seconds_for(path: Path) -> float:
    """After which a file is given up."""
    return _LEAST_SECONDS + unpacked_bytes(path) / _LEAST_BYTES_PER_SECOND


def read_file(told: Mapping[str, Any]) -> ReadFile:
    """What one that read a file says of it (``rank_reader.py``)."""
    ranks = [(number, tuple(notes)) for number, notes in told["ranks"]]
    return ReadFile(ranks, told.get("notes", []))


def read_in_processes(
    paths: Sequence[Path], directory: Path, processes: int, on_read: Callable[[int], None]
) -> list[ReadFile]:
    """Read recordings into ``directory`` (``features/trace/readers/stored.py``).

    Args:
        paths: Files.
        directory: Where the columns of their ranks are written.
        processes: How many are started.
        on_read: Called with the number of files that are read.

    Raises:
        TraceError: a file cannot be read, the first of several.
        MachineError: a process ended that read one, or took minutes.
    """
    read: dict[int, ReadFile] = {}
    errors: dict[int, TraceError] = {}
    waiting = iter(range(len(paths)))
    with _readers(directory, processes) as readers, selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader.output, selectors.EVENT_READ, reader)
            reader.begin(next(waiting, None), paths)
        while busy := [reader for reader in readers if reader.job is not None]:
            wait = min(reader.deadline for reader in busy) - time.monotonic()
            ready = selector.select(max(0.0, wait))
            if not ready:
                raise _too_slow(min(busy, key=lambda reader: reader.deadline), paths)
            for key, _ in ready:
                if key.data.job is None:  # it ended, with nothing left to read
                    selector.unregister(key.fd)
                    continue
                told = key.data.told(paths)
                if told is None:
                    continue
                if "error" in told:
                    errors[told["number"]] = TraceError(told["error"], hint=told["hint"])
                else:
                    read[told["number"]] = read_file(told)
                    on_read(len(read))
                # After an error only those are finished that were begun before.
                key.data.begin(None if errors else next(waiting, None), paths)
    if errors:
        raise errors[min(errors)]
    return [read[number] for number in range(len(paths))]


@dataclass
class _Reader:
    """A process, and what it reads."""

    process: subprocess.Popen[bytes]
    input: IO[bytes]
    output: IO[bytes]
    pending: bytes = b""
    job: int | None = None
    deadline: float = 0.0

    def begin(self, job: int | None, paths: Sequence[Path]) -> None:
        """Give it the next file; ``None`` where there is none."""
        self.job = job
        if job is None:
            return
        self.deadline = time.monotonic() + seconds_for(paths[job])
        line = json.dumps({"number": job, "path": str(paths[job])})
        try:
            self.input.write(line.encode() + b"\n")
            self.input.flush()
        except BrokenPipeError as error:
            raise self._ended(paths) from error

    def told(self, paths: Sequence[Path]) -> dict[str, Any] | None:
        """What it says of its file; ``None`` where it has not said all of it.

        Raises:
            MachineError: it has ended.
        """
        piece = os.read(self.output.fileno(), _READ_BYTES)
        if not piece:
            raise self._ended(paths)
        self.pending += piece
        line, end, rest = self.pending.partition(b"\n")
        if not end:
            return None
        self.pending = rest
        told: dict[str, Any] = json.loads(line)
        return told

    def _ended(self, paths: Sequence[Path]) -> MachineError:
        code = self.process.wait(timeout=_LEAST_SECONDS)
        how = f"ended with {code}"
        if code < 0:
            how = f"was ended by signal {-code}"
        name = paths[self.job or 0]
        return MachineError(
            f"{name}: the process that read it {how}",
            hint="where memory runs out, the kernel ends processes; a lower --memory starts fewer",
        )


def _too_slow(reader: _Reader, paths: Sequence[Path]) -> MachineError:
    return MachineError(
        f"{paths[reader.job or 0]}: not read after minutes",
        hint="the disk may be slow or not answer; copy the recordings to a local one",
    )


@contextmanager
def _readers(directory: Path, count: int) -> Iterator[list[_Reader]]:
    """Processes that read; none is left running."""
    readers: list[_Reader] = []
    command = module_command("torchscale.features.trace.readers.rank_reader", str(directory))
    try:
        for _ in range(count):
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_SINGLE_THREADED},
            )
            if process.stdin is not None and process.stdout is not None:
                readers.append(_Reader(process, process.stdin, process.stdout))
        yield readers
    finally:
        for reader in readers:
            reader.process.kill()
            reader.process.wait()
            for stream in (reader.input, reader.output):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
