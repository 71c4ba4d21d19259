"""Collects in a rank of a watched job what its diagnosis needs, and writes it every half second.

Nothing here stops the device or raises into the job: what fails ends the collection and leaves the
reason in the rank's folder. Files of a rank, below ``ranks/R.A/`` (rank and attempt):

``rank.json``
    Who it is, the clock that marks count from, and at last how it ended.
``marks-N.bin``, ``calls-N.bin``, ``lengths-N.bin``, ``shares-N.bin``
    Moments (int64, ``marks.py``), collectives and their lengths on the device (three int64 each,
    ``recorder.py``), time without a core (two int64 each, ``sampler.py``), in segments of 2 MB; the
    last four are kept.
``names.jsonl``
    The keys of the collectives, and process groups with their ranks.
``lines.json``
    Lines of the user's program by samples, and what this rank's process used.
``checkpoints.json``
    The files that it saved, and those that it loaded before its first step (``checkpoints.py``).

A request in ``hang/`` is answered there with the stacks of this process and its flight recorders.
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
from time import time as wall_clock
from typing import Any

import torch

from . import facts
from .beats import beat, until_next
from .checkpoints import Checkpoints
from .dump import flight_recorders, groups, stacks
from .files import Segments, append_whole, claim, overwrite
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
from .recorder import Call, Recorder, enable_timing, enlarge_ring
from .sampler import Sampler

FORMAT = 1
DUMP_VERSION = 2
"""Of the dump of a rank that hangs, as torchscale's reader expects it."""
_FLUSH_SECONDS = 0.5
"""Between two writes: less than the second that a killed job may lose."""
_SAMPLES_A_FLUSH = 10
"""20 samples a second: 1,200 in a minute, for 0.15 % of a core."""
_LEAST_BYTES = 1024
"""Of a file that is replaced: room for a reason that a full disk would not take."""
_LAST_FLUSH_SECONDS = 10.0
"""For what the thread is writing as the process ends. A disk takes milliseconds; a mount that does
not answer must not keep the process."""
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
        self._written: dict[str, Segments] = {}
        self._problem = ""
        self._has_failed = False
        self._flushes = 0
        self._facts: dict[str, Any] = {}
        self._answered = 0.0
        self._has_stepped = False
        self._thread = threading.Thread(target=self._run, name="torchscale-watch", daemon=True)

    def start_with_groups(self) -> None:
        """Start as soon as the job makes its first process group."""
        if not torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d  # noqa: PLC0415 - torch has it already

        original = distributed_c10d.init_process_group

        def starting(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
            result = original(*args, **options)
            if self._recorder.is_timed:
                enable_timing()
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
            self._sampler.begin()  # what came before is no part of a step
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
        if facts.belongs_to_a_rank():
            self.leave()
            return
        self._guarded(self._open)
        if not self._facts:
            self._stop()
            return
        self.marks.start()
        self._thread.start()
        atexit.register(self._finish)

    def _open(self) -> None:
        rank = facts.rank()
        self._folder = claim(self._root / "ranks", rank, facts.attempt())
        os.environ[facts.RANK_VARIABLE] = f"{os.getpid()}:{rank}"
        self._facts = {
            "format": FORMAT,
            "rank": rank,
            "world_size": facts.world_size(),
            "local_world_size": int(os.environ.get("LOCAL_WORLD_SIZE") or facts.world_size()),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "start_ns": self.marks.start_ns,
            "began": wall_clock(),
            "process_began": facts.process_began(),
            "restart": facts.restart(),
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "backend": facts.backend(),
            "device": facts.device(),
            "has_recorder": self._recorder.exists,
            "is_timed": self._recorder.is_timed,
            "threads": torch.get_num_threads(),
            "cpus": facts.cpus(),
        }
        self._write_facts("running")

    def _run(self) -> None:
        """The thread: samples, reads what is urgent, writes."""
        flushed = beat(_FLUSH_SECONDS)
        while not self._is_over.wait(until_next(_FLUSH_SECONDS / _SAMPLES_A_FLUSH)):
            self._guarded(self._sampler.sample)
            self._guarded(self._drain_if_urgent)
            if beat(_FLUSH_SECONDS) != flushed:
                flushed = beat(_FLUSH_SECONDS)
                self._guarded(self._flush)
                self._guarded(self._answer)

    def _finish(self) -> None:
        """As the process ends, and once the thread has ended: of two that write, both would write
        the same moments."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        self._thread.join(_LAST_FLUSH_SECONDS)
        if self._thread.is_alive():
            return
        self._guarded(self._drain)
        self._guarded(self._flush)
        self._guarded(self._write_lines)
        self._guarded(lambda: self._write_facts("ended"))

    def _drain(self) -> None:
        with self._lock:
            if self._recorder.exists:
                self._calls += self._recorder.drain()

    def _drain_if_urgent(self) -> None:
        if self._recorder.exists and self._recorder.is_urgent():
            self._drain()

    def _flush(self) -> None:
        """Write what was collected since the last time. Calls first: a reader takes the steps that
        end before the last of them were read."""
        with self._lock:
            calls, self._calls = self._calls, []
            lengths = self._recorder.take_lengths()
        self._add("calls", [value for call in calls for value in call])
        self._add("lengths", lengths)
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
        recorders, problem = flight_recorders()
        rank = self._facts["rank"]
        dump = {
            "schema_version": DUMP_VERSION,
            "rank": rank,
            "pid": os.getpid(),
            "time": wall_clock(),
            "since": 0.0,
            "threads": stacks(),
            "groups": groups(),
            "flight_recorders": recorders,
            "problem": problem,
        }
        part = request.with_name(f"autopsy-rank-{rank}.part")
        part.write_text(json.dumps(dump))
        part.replace(request.with_name(f"autopsy-rank-{rank}.json"))

    def _add(self, name: str, values: list[int]) -> None:
        if self._folder is None or not values:
            return
        segments = self._written.setdefault(name, Segments(self._folder, name))
        segments.add(array.array("q", values).tobytes())

    def _write_names(self) -> None:
        lines = [
            {
                "key": number,
                "backend": key.backend,
                "group": key.group,
                "operation": key.operation,
                "bytes": key.size,
                "p2p": key.is_p2p,
            }
            for number, key in enumerate(
                self._recorder.keys[self._keys_written :], start=self._keys_written
            )
        ]
        new = {name: ranks for name, ranks in groups().items() if name not in self._groups_written}
        if new and self._recorder.is_timed:
            enable_timing()
        content = [*({"name": name, "ranks": ranks} for name, ranks in new.items()), *lines]
        partners = len(self.peers.sends) + len(self.peers.receives)
        if partners > self._peers_written:
            sends, receives = sorted(self.peers.sends), sorted(self.peers.receives)
            content.append({"sends": sends, "receives": receives})
        if not content or self._folder is None:
            return
        text = "".join(json.dumps(line) + "\n" for line in content)
        append_whole(self._folder / "names.jsonl", text.encode())
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
            "recorders": self._recorder.counts,
            "failed_recorders": self._recorder.problems,
            **facts.of_cuda(),
        }
        self._replace("lines.json", content)

    def _write_facts(self, state: str) -> None:
        content = {**self._facts, "state": state, "problem": self._problem}
        try:
            self._replace("rank.json", content)
        except OSError:
            if self._folder is not None:
                overwrite(self._folder / "rank.json", json.dumps(content))

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
        collection, and nothing is done after that."""
        if self._has_failed:
            return
        try:
            action()
        except OSError as error:
            is_new = not self._problem
            self._problem = f"{type(error).__name__}: {error}"
            if is_new and self._facts:
                with contextlib.suppress(OSError):
                    self._write_facts("running")
        except Exception as error:  # noqa: BLE001 - a job runs on whatever fails here
            self._has_failed = True
            self._problem = f"{type(error).__name__}: {error}"
            self._stop()
            with contextlib.suppress(OSError):
                self._write_facts("failed")
