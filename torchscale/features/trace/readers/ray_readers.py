"""Recordings read by tasks of a Ray cluster, each where a core is free: only columns travel back."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchscale.errors import MachineError, TraceError
from torchscale.features.trace.readers.rank_reader import read_for_another
from torchscale.features.trace.readers.reader_pool import (
    BYTES_PER_BYTE,
    PROCESS_BYTES,
    ReadFile,
    read_file,
    seconds_for,
    unpacked_bytes,
)
from torchscale.features.trace.readers.stored import write_columns
from torchscale.util.gc import gc_paused
from torchscale.util.ray_connection import connected
from torchscale.version import __version__

_AHEAD = 2
"""Tasks for each core of the cluster: one that runs, and one whose turn comes without a wait for
this process."""
_RETRIES = 1
"""Of a task whose node or process is gone. A file that ends two processes would end the next one."""


@dataclass(frozen=True)
class RayReaders:
    """Tasks of a Ray cluster, of a core each.

    Attributes:
        address: As of :func:`torchscale.util.ray_connection.connected`.
    """

    address: str | None = None

    def suits(self, paths: Sequence[Path], memory_bytes: int) -> bool:
        """Whether they are to read these files; they were asked for."""
        del memory_bytes
        return bool(paths)

    def read(
        self,
        paths: Sequence[Path],
        directory: Path,
        memory_bytes: int,
        on_read: Callable[[int], None],
    ) -> list[ReadFile]:
        """Read recordings into ``directory``: the same files as processes of this machine leave.

        Args:
            paths: Files, which the nodes of the cluster see by these paths.
            directory: Where the columns of their ranks are written, on this machine.
            memory_bytes: For columns on their way, and on each node for tasks.
            on_read: Called with the number of files that are read.

        Raises:
            UsageError: Ray is not installed.
            TraceError: a file cannot be read, the first of several.
            MachineError: no cluster answers, its nodes have another version of torchscale, or tasks
                end or do not.
        """
        with connected(self.address) as ray:
            reading = _Reading(ray, paths, directory, _at_once(ray, paths, memory_bytes))
            return reading.all(on_read)


def _at_once(ray: Any, paths: Sequence[Path], memory_bytes: int) -> int:  # noqa: ANN401 - Ray's module
    """How many files are asked for at a time."""
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    columns = int(BYTES_PER_BYTE * max(map(unpacked_bytes, paths)))
    cores = _AHEAD * int(ray.cluster_resources().get("CPU", 1))
    by_nodes = nodes * max(1, memory_bytes // (PROCESS_BYTES + columns))
    here = memory_bytes // max(1, columns)
    return max(1, min(len(paths), cores, by_nodes, here))


@dataclass
class _Reading:
    """Files that are asked for, a task each.

    Attributes:
        ray: The module.
        paths: All files.
        directory: For their columns.
        at_once: How many are asked for at a time.
    """

    ray: Any
    paths: Sequence[Path]
    directory: Path
    at_once: int

    def all(self, on_read: Callable[[int], None]) -> list[ReadFile]:
        """What was read of each."""
        read: dict[int, ReadFile] = {}
        errors: dict[int, TraceError] = {}
        task = self.ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(
            read_elsewhere
        )
        waiting = iter(range(len(self.paths)))
        asked: dict[Any, int] = {}
        try:
            while True:
                # After an error only those are finished that were asked for before.
                free = 0 if errors else self.at_once - len(asked)
                for _, number in zip(range(free), waiting, strict=False):
                    path = str(self.paths[number])
                    asked[task.remote(path, number, str(Path.cwd()), __version__)] = number
                if not asked:
                    break
                for reference in self._finished(asked):
                    number = asked.pop(reference)
                    told = self._told(reference, number)
                    if "error" in told:
                        errors[number] = TraceError(told["error"], hint=told["hint"])
                        continue
                    read[number] = read_file(told)
                    on_read(len(read))
        finally:
            for reference in asked:
                self.ray.cancel(reference, force=True)
        if errors:
            raise errors[min(errors)]
        return [read[number] for number in range(len(self.paths))]

    def _finished(self, asked: dict[Any, int]) -> list[Any]:
        """Tasks that have ended, at least one.

        Raises:
            MachineError: none has for minutes.
        """
        seconds = max(seconds_for(self.paths[number]) for number in asked.values())
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            done, _ = self.ray.wait(list(asked), num_returns=1, timeout=1.0)
            if done:
                return list(done)
        raise MachineError(
            f"{self.paths[min(asked.values())]}: not read after minutes",
            hint="`ray status` shows whether the cluster has a free core; a disk may not answer",
        )

    def _told(self, reference: Any, number: int) -> dict[str, Any]:  # noqa: ANN401 - Ray's
        """What a task says of its file, whose columns are written here."""
        try:
            told, files = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            raise _task_error(self.paths[number], error) from error
        if told.get("version", __version__) != __version__:
            raise MachineError(
                f"{told['node']} of the Ray cluster has torchscale {told['version']}, this process "
                f"{__version__}",
                hint="install the same version on all nodes",
            )
        write_columns(files, self.directory)
        return dict(told)


def _task_error(path: Path, error: Exception) -> MachineError:
    text = str(error)
    if "No module named 'torchscale" in text:
        return MachineError(
            "the nodes of the Ray cluster have no torchscale that reads recordings",
            hint="install the same version there: pip install torchscale-bench",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[-1] if lines and "Traceback" in text else next(iter(lines), "")
    return MachineError(
        f"{path}: the Ray task that read it ended ({type(error).__name__}: {said})",
        hint="where memory runs out, Ray ends tasks; a lower --memory asks for fewer at a time",
    )


def read_elsewhere(
    path: str, number: int, working_directory: str, version: str
) -> tuple[dict[str, object], dict[str, bytes]]:
    """The task: read a file, and return what is to be said of it and the files of its columns.

    Args:
        path: Of the recording.
        number: Of the file.
        working_directory: Of the process that asks, which ``path`` may be relative to.
        version: Of torchscale there.
    """
    node = socket.gethostname()
    if version != __version__:
        return {"number": number, "version": __version__, "node": node}, {}
    place = Path(working_directory, path)
    if not place.exists():
        hint = "put recordings where all nodes of the cluster see them by the same path"
        return {"number": number, "error": f"{path}: not on {node}", "hint": hint}, {}
    if Path.cwd() != Path(working_directory) and not Path(path).is_absolute():
        os.chdir(working_directory)  # messages and results have the path as it was given
    with tempfile.TemporaryDirectory(prefix="torchscale-ray-") as name, gc_paused():
        told = read_for_another(Path(path), number, Path(name))
        return told, dict(_columns(Path(name)))


def _columns(directory: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(directory.iterdir()):
        yield file.name, file.read_bytes()
