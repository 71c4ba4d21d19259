"""Collects in a rank of a watched job what its diagnosis needs, and writes it every half second.

Nothing here stops the device or raises into the job: what fails ends the collection and leaves the
reason in the rank's folder. Files of a rank, below ``ranks/R.A/`` (rank and attempt):

``rank.json``
    Who it is, the clock that marks count from, and at last how it ended.
``marks-N.bin``, ``calls-N.bin``, ``shares-N.bin``
    Moments (int64, ``marks.py``), collectives (three int64 each, ``recorder.py``), time without a
    core (two int64 each, ``sampler.py``), in segments of 2 MB; the last four are kept.
``names.jsonl``
    The keys of the collectives, and process groups with their ranks.
``lines.json``
    Lines of the user's program by samples, and what this rank's process used.
``checkpoints.json``
    The files that it saved, and those that it loaded before its first step (``checkpoints.py``).

A request in ``hang/`` is answered there with the stacks of this process and its flight recorder.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import resource
import socket
import sys
import threading
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime, monotonic
from time import time as wall_clock
from typing import Any

import torch

from .checkpoints import Checkpoints
from .dump import flight_recorder, groups, stacks
from .hooks import (
    Peers,
    watch_collections,
    watch_loader,
    watch_modes,
    watch_optimizers,
    watch_passes,
    watch_waits,
)
from .marks import Marks
from .recorder import Call, Recorder, enlarge_ring
from .sampler import Sampler

FORMAT = 1
DUMP_VERSION = 2
"""Of the dump of a rank that hangs, as torchscale's reader expects it."""
_FLUSH_SECONDS = 0.5
"""Between two writes: less than the second that a killed job may lose."""
_SAMPLES_A_FLUSH = 10
"""20 samples a second of 30 µs each: less than 0.1 % of a core, and 1,200 in a minute."""
_SEGMENT_BYTES = 2 << 20
_UNWRITTEN_BYTES = _SEGMENT_BYTES // 48 * 48
"""Of each file, while its disk is full; whole rows of any of them."""
_LEAST_BYTES = 1024
"""Of a file that is replaced: room for a reason that a full disk would not take."""
_SEGMENTS = 4
"""Of each file, the last ones: what has been read by the command is of no more use."""
FIRST_ATTEMPT = "TORCHSCALE_WATCH_FIRST_ATTEMPT"
"""Variable with the number of the first attempt of this run of the command."""
_RANK_VARIABLE = "TORCHSCALE_WATCH_RANK"
"""Variable with ``pid:rank`` of the rank's process, for those that it starts."""
_STARTTIME = 19
"""Field of ``/proc/PID/stat`` after the name in parentheses, in ticks since the boot."""
_LINES_EVERY = 10
"""Flushes between two writes of the lines: 5 s."""


def install(directory: str) -> None:
    """Have this process collect into ``directory`` from its first step or process group on. A
    process without either, such as the launcher, leaves nothing."""
    enlarge_ring()
    collector = Collector(Path(directory))
    watch_optimizers(collector.marks, collector.on_step)
    watch_passes(collector.marks)
    watch_loader(collector.marks)
    watch_waits(collector.marks)
    collector.peers.watch()
    collector.checkpoints.watch()
    watch_modes(collector.marks)
    watch_collections(collector.marks)
    collector.start_with_groups()
    os.register_at_fork(after_in_child=collector.leave)


class Collector:
    """Of one rank.

    Attributes:
        marks: What the hooks note.
        peers: Ranks that this rank sends to and receives from.
        checkpoints: What it saves and loads.
    """

    def __init__(self, directory: Path) -> None:
        self.marks = Marks()
        self.peers = Peers()
        self.checkpoints = Checkpoints(self.marks)
        self._peers_written = 0
        self._root = directory
        self._recorder = Recorder(self.marks)
        self._sampler = Sampler()
        self._folder: Path | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._keys_written = 0
        self._groups_written: set[str] = set()
        self._written: dict[str, _Segments] = {}
        self._problem = ""
        self._flushes = 0
        self._facts: dict[str, Any] = {}
        self._answered = 0.0
        self._has_stepped = False

    def start_with_groups(self) -> None:
        """Start as soon as the job makes its first process group."""
        if not torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d  # noqa: PLC0415 - torch has it already

        original = distributed_c10d.init_process_group

        def starting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
            result = original(*args, **options)
            self._start()
            return result

        starting.__doc__, starting.__name__ = original.__doc__, original.__name__
        starting.__wrapped__ = original  # type: ignore[attr-defined]
        distributed_c10d.init_process_group = starting
        torch.distributed.init_process_group = starting

    def on_step(self, optimizer: int) -> None:
        """After a step of an optimizer, the first one being 0, in the main thread."""
        if optimizer == 0:
            self.checkpoints.on_step()
        if self._folder is None:
            self._start()
        if self._is_over.is_set():
            return
        if not self._has_stepped:
            self._has_stepped = True
            self._sampler.counts.clear()  # what came before is no part of a step
        if self._recorder.exists and self._recorder.is_due():
            self._guarded(self._drain)

    def leave(self) -> None:
        """In a process that this one forked: collect nothing."""
        self._stop()
        self._folder = self._folder or Path()

    def _stop(self) -> None:
        self._is_over.set()
        self.marks.stop()
        self.checkpoints.stop()

    def _start(self) -> None:
        if self._folder is not None:
            return
        if _belongs_to_a_rank():
            self.leave()
            return
        self._guarded(self._open)
        if not self._facts:
            self._stop()
            return
        self.marks.start()
        threading.Thread(target=self._run, name="torchscale-watch", daemon=True).start()
        atexit.register(self._finish)

    def _open(self) -> None:
        rank = _rank()
        self._folder = _claim(self._root / "ranks", rank, _attempt())
        os.environ[_RANK_VARIABLE] = f"{os.getpid()}:{rank}"
        self._facts = {
            "format": FORMAT,
            "rank": rank,
            "world_size": _world_size(),
            "local_world_size": int(os.environ.get("LOCAL_WORLD_SIZE") or _world_size()),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "start_ns": self.marks.start_ns,
            "began": wall_clock(),
            "process_began": _process_began(),
            "restart": _restart(),
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "backend": _backend(),
            "device": _device(),
            "has_recorder": self._recorder.exists,
            "threads": torch.get_num_threads(),
            "cpus": _cpus(),
        }
        self._write_facts("running")

    def _run(self) -> None:
        """The thread: samples, reads what is urgent, writes."""
        since = monotonic()
        while not self._is_over.wait(_FLUSH_SECONDS / _SAMPLES_A_FLUSH):
            self._guarded(self._sampler.sample)
            if self._recorder.exists and self._recorder.is_urgent():
                self._guarded(self._drain)
            if monotonic() - since >= _FLUSH_SECONDS:
                since = monotonic()
                self._guarded(self._flush)
                self._guarded(self._answer)

    def _finish(self) -> None:
        """As the process ends."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        self._guarded(self._drain)
        self._guarded(self._flush)
        self._guarded(self._write_lines)
        self._guarded(lambda: self._write_facts("ended"))

    def _drain(self) -> None:
        with self._lock:
            if self._recorder.exists:
                self._calls += self._recorder.drain()

    def _flush(self) -> None:
        """Write what was collected since the last time. Calls first: a reader takes the steps that
        end before the last of them were read."""
        with self._lock:
            calls, self._calls = self._calls, []
        self._add("calls", [value for call in calls for value in call])
        self._add("shares", self._sampler.take_shares())
        self._add("marks", self.marks.take())
        self._write_names()
        for segments in self._written.values():
            segments.write()
        self._write_checkpoints()
        if self._problem and not any(segments.has_lost for segments in self._written.values()):
            self._problem = ""  # there is room again, and nothing is missing
            self._write_facts("running")
        self._flushes += 1
        if self._flushes % _LINES_EVERY == 1:
            self._write_lines()

    def _answer(self) -> None:
        """Leave a dump where one was asked for."""
        request = self._root / "hang" / "autopsy-request"
        try:
            asked = request.stat().st_mtime
        except OSError:
            return
        if asked == self._answered:
            return
        self._answered = asked
        recorder, problem = flight_recorder()
        rank = self._facts["rank"]
        dump = {
            "schema_version": DUMP_VERSION,
            "rank": rank,
            "pid": os.getpid(),
            "time": wall_clock(),
            "since": 0.0,
            "threads": stacks(),
            "groups": groups(),
            "flight_recorder": recorder,
            "problem": problem,
        }
        part = request.with_name(f"autopsy-rank-{rank}.part")
        part.write_text(json.dumps(dump))
        part.replace(request.with_name(f"autopsy-rank-{rank}.json"))

    def _add(self, name: str, values: list[int]) -> None:
        if self._folder is None or not values:
            return
        segments = self._written.setdefault(name, _Segments(self._folder, name))
        segments.add(array.array("q", values).tobytes())

    def _write_names(self) -> None:
        lines = [
            {"key": number, "group": group, "operation": operation, "bytes": size, "p2p": is_p2p}
            for number, (group, operation, size, is_p2p) in enumerate(
                self._recorder.keys[self._keys_written :], start=self._keys_written
            )
        ]
        new = {name: ranks for name, ranks in groups().items() if name not in self._groups_written}
        content = [*({"name": name, "ranks": ranks} for name, ranks in new.items()), *lines]
        partners = len(self.peers.sends) + len(self.peers.receives)
        if partners > self._peers_written:
            sends, receives = sorted(self.peers.sends), sorted(self.peers.receives)
            content.append({"sends": sends, "receives": receives})
        if not content or self._folder is None:
            return
        text = "".join(json.dumps(line) + "\n" for line in content)
        _append_whole(self._folder / "names.jsonl", text.encode())
        self._keys_written += len(lines)
        self._groups_written |= set(new)
        self._peers_written = partners

    def _write_checkpoints(self) -> None:
        content = self.checkpoints.take()
        if content is None:
            return
        try:
            self._replace("checkpoints.json", content)
        except OSError:
            self.checkpoints.take_again()
            raise

    def _write_lines(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        content = {
            "lines": [[*place, count] for place, count in self._sampler.counts.most_common(200)],
            "samples": self._sampler.counts.total(),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "major_faults": usage.ru_majflt,
            "minor_faults": usage.ru_minflt,
            "lost_calls": self._recorder.lost,
            **_of_cuda(),
        }
        self._replace("lines.json", content)

    def _write_facts(self, state: str) -> None:
        facts = {**self._facts, "state": state, "problem": self._problem}
        try:
            self._replace("rank.json", facts)
        except OSError:
            if self._folder is not None:
                _overwrite(self._folder / "rank.json", json.dumps(facts))

    def _replace(self, name: str, content: dict[str, Any]) -> None:
        if self._folder is None:
            return
        part = self._folder / f"{name}.part"
        try:
            part.write_text(json.dumps(content).ljust(_LEAST_BYTES))
            part.replace(self._folder / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def _guarded(self, action: Any) -> None:  # noqa: ANN401 - a function without arguments
        """Do it. A full disk loses what could not be written; whatever else fails ends the
        collection."""
        try:
            action()
        except OSError as error:
            is_new = not self._problem
            self._problem = f"{type(error).__name__}: {error}"
            if is_new and self._facts:
                with contextlib.suppress(OSError):
                    self._write_facts("running")
        except Exception as error:  # noqa: BLE001 - a job runs on whatever fails here
            self._problem = f"{type(error).__name__}: {error}"
            self._stop()
            with contextlib.suppress(OSError):
                self._write_facts("failed")


class _Segments:
    """Files ``name-1.bin``, ``name-2.bin`` …, of which the last are kept. What cannot be written is
    kept for the next time, the last of it.

    Attributes:
        has_lost: Whether some of it was dropped.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._number, self._size = 1, 0
        self._unwritten = b""
        self.has_lost = False

    def add(self, content: bytes) -> None:
        """What to write next."""
        content = self._unwritten + content
        self.has_lost |= len(content) > _UNWRITTEN_BYTES
        self._unwritten = content[-_UNWRITTEN_BYTES:]

    def write(self) -> None:
        """Write what there is, whole, or nothing.

        Raises:
            OSError: it cannot be written.
        """
        content = self._unwritten
        if not content:
            return
        if self._size > _SEGMENT_BYTES:
            self._number, self._size = self._number + 1, 0
            with contextlib.suppress(OSError):
                self._path(self._number - _SEGMENTS).unlink(missing_ok=True)
        _append_whole(self._path(self._number), content)
        self._size += len(content)
        self._unwritten = b""

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:06d}.bin"


def _overwrite(path: Path, text: str) -> None:
    """Write over a file that has the room: a full disk takes that.

    Raises:
        OSError: it cannot be written.
    """
    content = text.encode()
    with path.open("r+b", buffering=0) as file:
        file.write(content.ljust(path.stat().st_size))


def _append_whole(path: Path, content: bytes) -> None:
    """Append all of it, or nothing.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("ab", buffering=0) as file:
        written = file.tell()
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(written)
            raise


def _claim(ranks: Path, rank: int, attempt: int) -> Path:
    """A new folder for this rank, of this attempt or a later one: all ranks of an attempt have the
    same number, also where some of an earlier one never wrote."""
    ranks.mkdir(parents=True, exist_ok=True)
    while True:
        folder = ranks / f"{rank}.{attempt}"
        try:
            folder.mkdir()
        except FileExistsError:
            attempt += 1
        else:
            return folder


def _belongs_to_a_rank() -> bool:
    """Whether this process was started by the rank that it stands for, such as the one that writes
    its checkpoints."""
    pid, _, rank = os.environ.get(_RANK_VARIABLE, "").partition(":")
    return pid not in ("", str(os.getpid())) and rank == str(_rank())


def _restart() -> int:
    """How often torchrun has restarted the job."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") or 0)


def _attempt() -> int:
    """Which attempt of the job this is: after those of earlier runs of the command."""
    return int(os.environ.get(FIRST_ATTEMPT, "0") or 0) + _restart()


def _process_began() -> float:
    """When this process was started, in seconds since the epoch; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        began = int(fields[_STARTTIME]) / os.sysconf("SC_CLK_TCK")
        return wall_clock() - (clock_gettime(CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError):
        return 0.0


def _rank() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0") or 0)


def _world_size() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1") or 1)


def _backend() -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_backend()
    return ""


def _cpus() -> list[int]:
    """Logical CPUs that this process may use; empty where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return []


def _of_cuda() -> dict[str, Any]:
    """The device and the allocator's peaks, once the program has started CUDA; does not start it."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(index),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(index),
        "device_index": index,
        "device_name": properties.name,
        "device_uuid": str(getattr(properties, "uuid", "")),
    }


def _device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "cpu"
