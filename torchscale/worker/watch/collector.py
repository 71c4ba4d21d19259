"""Collects in a rank of a watched job what its diagnosis needs, and writes it every half second.

Nothing here stops the device, waits for a disk in a thread of the program or raises into it: what
fails ends the collection and leaves the reason. A thread writes, which takes no signals; what, says
``rank_folder.py``. A request in ``hang/`` is answered there with the stacks of this process and its
flight recorders.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from . import crash, ends, facts, imports, program_thread
from .beats import beat, until_next
from .checkpoints import Checkpoints
from .compilations import Compilations
from .dump import leave_dump
from .guard import guarded, tell
from .hooks import (
    Peers,
    watch_collections,
    watch_groups,
    watch_loader,
    watch_modes,
    watch_passes,
    watch_waits,
)
from .last_call import LastCall
from .marks import Marks
from .memory import MemoryReadings
from .optimizers import Optimizers
from .rank_folder import RankFolder
from .recorder import Call, Recorder
from .ring_settings import enable_timing, enlarge_ring, timing_asked
from .sampler import LineSampler
from .starts import number_start
from .startup import Startup
from .untraced import keep_untraced

FORMAT = 1
_FLUSH_SECONDS = 0.5
"""Between two writes: less than the second that a killed job may lose."""
_SAMPLES_A_FLUSH = 10
"""20 samples a second: 1,200 in a minute, for 0.15 % of a core."""
_LAST_FLUSH_SECONDS = 10.0
"""For what the thread writes as the process ends. It takes milliseconds, and seconds on a machine that
is very busy; a mount that does not answer must not keep the process."""
_FORK_SECONDS = 0.1
"""For what the thread does as the process forks: a lock that it holds then stays locked in the
child. It works for milliseconds at a time."""
_MOST_CALLS = 1 << 19
"""Collectives that are held, 100 MB: a disk that does not answer takes none of them."""
_USE_EVERY = 10
"""Flushes between two writes of what the process used: 5 s."""
_SAMPLE_SECONDS = _FLUSH_SECONDS / _SAMPLES_A_FLUSH
_MOST_EARLY = 12_000
"""Samples before there is anything to collect: ten minutes of a start."""


def install(directory: str, *, in_ray: bool = False) -> None:
    """Have this process collect into ``directory`` from its first step or process group on, or at
    once where it has a group. A process without either, such as the launcher, leaves nothing.

    Args:
        directory: Of the job.
        in_ray: Whether this process is a worker of Ray Train: it trains in another thread than the
            main one, and no launcher counts its starts.
    """
    enlarge_ring()
    if in_ray:
        program_thread.adopt()
    collector = Collector(Path(directory), in_ray=in_ray)
    keep_untraced()
    Optimizers(collector.marks, collector.on_step).watch()
    watch_passes(collector.marks)
    watch_loader(collector.marks)
    watch_waits(collector.marks)
    collector.peers.watch()
    collector.checkpoints.watch()
    collector.compilations.watch()
    watch_modes(collector.marks)
    watch_collections(collector.marks, collector.on_collection)
    watch_groups(collector.startup.group_begins, collector.on_group)
    if facts.is_launched_as_rank():
        guarded(collector.look_early)
    os.register_at_fork(
        before=lambda: guarded(collector.pause),
        after_in_parent=lambda: guarded(collector.go_on),
        after_in_child=lambda: guarded(collector.begin),
    )
    if facts.has_group():
        collector.on_group()


class Collector:
    """Of one rank.

    Attributes:
        marks: What the hooks note.
        peers: Ranks that this rank sends to and receives from.
        checkpoints: What it saves and loads.
        last_call: The last collective that it called over gloo.
        compilations: What torch.compile compiles in it.
        startup: When it came to which point of its start.
    """

    def __init__(self, directory: Path, *, in_ray: bool = False) -> None:
        self.marks = Marks()
        self.peers = Peers()
        self.checkpoints = Checkpoints(self.marks)
        self.last_call = LastCall()
        self.compilations = Compilations(self.marks)
        self.startup = Startup()
        self._root = directory
        self._sampler = LineSampler()
        self._forked_ns = 0
        self._in_ray = in_ray
        self._begin()

    def begin(self) -> None:
        """Begin anew in a process that was forked, which may be a rank of its own: with nothing of
        the one that forked it, whose thread is not here and may have held any lock."""
        self.marks.begin()
        self.peers.begin()
        self.checkpoints.begin()
        self.last_call.begin()
        self.compilations.begin()
        self.startup.begin()
        self._forked_ns = self.marks.start_ns
        crash.end_in_child()
        program_thread.forget()
        self._in_ray = False
        self._begin()

    def _begin(self) -> None:
        self._starts = count()
        self._is_over = False
        self._ends, self._has_news = threading.Event(), threading.Event()
        self._busy = threading.Lock()
        self._paused_by: int | None = None
        self._lock = threading.Lock()
        self._has_thread = False
        self._has_ended = threading.Event()
        self._recorder: Recorder | None = None
        self._folder = RankFolder(self._root)
        self._attempt = 0
        self._calls: list[Call] = []
        self._problem = self._shown_problem = ""
        self._has_failed = False
        self._flushes = 0
        self._facts: dict[str, Any] = {}
        self._has_stepped = False
        self._answered = 0.0
        self._memory = MemoryReadings()

    def look_early(self) -> None:
        """Note where the program is from now on: its start may take long.

        Raises:
            RuntimeError: the process may have no further thread.
        """
        self._start_thread()

    def on_group(self) -> None:
        """After the job has made its process group."""
        self.startup.group_ended()
        if timing_asked():
            enable_timing()
        guarded(self.last_call.watch)
        self._start()

    def on_step(self, optimizer: int) -> None:
        """After a step of an optimizer, the first one being 0, in the thread that makes it."""
        if optimizer == 0:
            self.checkpoints.on_step()
        self._start()
        if self._is_over or self._recorder is None:
            return
        if not self._has_stepped:
            self._has_stepped = True
            if self._in_ray and not program_thread.is_program_thread():
                program_thread.adopt()
                self._sampler.follow_program()
            self._memory.device = guarded(facts.cuda_index)  # that of this thread
        if self._recorder.exists and self._recorder.is_due():
            self._guarded(self._drain)

    def on_collection(self, frame: FrameType, lasted: int) -> None:
        """After a long garbage collection, in the thread in which it came."""
        if _thread.get_ident() == self._sampler.main:
            self._sampler.note_held(frame, lasted)

    def pause(self) -> None:
        """Before a fork: have the thread hold no lock."""
        if self._has_thread and self._busy.acquire(timeout=_FORK_SECONDS):
            self._paused_by = _thread.get_ident()

    def go_on(self) -> None:
        """After it, in the thread that forked: another one may have forked meanwhile, and not have
        waited so long."""
        if self._paused_by == _thread.get_ident():
            self._paused_by = None
            self._busy.release()

    def _stop(self) -> None:
        self._is_over = True
        self._has_news.set()
        self.marks.stop()
        self.checkpoints.stop()

    def _start(self) -> None:
        """Begin to collect, unless this was tried before."""
        if next(self._starts):
            return
        try:
            imports.settle()
            if facts.belongs_to_a_rank():
                self._stop()
                return
            self._collect()
        except Exception as error:  # noqa: BLE001 - a program runs on whatever fails here
            self._stop()
            tell(error)

    def _collect(self) -> None:
        """Begin to collect.

        Raises:
            ValueError: a variable is not what a launcher sets.
            RuntimeError: the process may have no further thread.
        """
        if self._in_ray:
            number_start(self._root)
        self._attempt = facts.attempt()
        self._facts = {
            "format": FORMAT,
            **facts.of_process(self.marks.start_ns),
            "startup": self.startup.facts(),
        }
        if self._forked_ns:  # it looks at the main thread of the other process
            self._sampler.close()
            self._sampler = LineSampler()
        self._recorder = Recorder(self.marks, since_ns=self._forked_ns)
        facts.claim_rank()
        ends.know(self._facts)
        self.marks.start()
        self._has_news.set()
        if not self._has_thread:
            self._start_thread()

    def _start_thread(self) -> None:
        with _no_signals():
            # Not one of ``threading``'s: the program lists, traces and waits for those.
            _thread.start_new_thread(self._run, ())
        self._has_thread = True
        _at_exit(self._finish)

    def _open(self) -> None:
        """Make the rank's folder.

        Raises:
            OSError: it cannot be made.
        """
        self._folder.make(self._facts["rank"], self._attempt)
        self._write_facts("running")
        guarded(crash.watch_crash, str(self._root))
        if self._folder.path is not None:
            guarded(self.last_call.open, self._folder.path)

    def _run(self) -> None:
        """The thread."""
        try:
            guarded(self._work)
        finally:
            self._has_ended.set()

    def _work(self) -> None:
        """Sample, read what is urgent, write, until the process ends."""
        if not self._has_begun():
            return
        self._guarded(self._open)
        flushed = beat(_FLUSH_SECONDS)
        while not self._has_failed:
            if self._ends.wait(until_next(_SAMPLE_SECONDS)) or program_thread.has_ended():
                break
            with self._busy:
                guarded(ends.look)
                self._guarded(self._sampler.sample)
                self._guarded(self._drain_if_urgent)
                if beat(_FLUSH_SECONDS) != flushed:
                    flushed = beat(_FLUSH_SECONDS)
                    self._guarded(self._flush)
                    self._guarded(self._answer)
                self._show_problem()
        self._end()

    def _has_begun(self) -> bool:
        """Sample until there is something to collect; whether there is."""
        for _ in range(_MOST_EARLY):
            if self._has_news.wait(until_next(_SAMPLE_SECONDS)):
                break
            with self._busy:
                guarded(self._sampler.sample)
        self._has_news.wait()
        return self._recorder is not None and not self._is_over

    def _end(self) -> None:
        """Write the last of it."""
        if program_thread.has_ended():
            guarded(ends.note_raised, guarded(program_thread.raised))
        self._sampler.close()  # of a process without descriptors this leaves one
        self._guarded(self._drain)
        self._guarded(self._flush)
        self._guarded(self._write_use)
        self._guarded(lambda: self._write_facts("ended"))
        self._show_problem()
        if self._folder.path is None:
            tell(OSError(self._problem))
        if program_thread.has_ended():
            self._stop()  # its process goes on, in which nothing is the program's any more

    def _finish(self) -> None:
        """As the process ends: have the thread write the last of it."""
        if self._is_over or not self._has_thread:
            return
        self._ends.set()
        self._has_news.set()
        self._has_ended.wait(_LAST_FLUSH_SECONDS)
        self._stop()

    def _drain(self) -> None:
        """Read the recorders, unless another thread does, or a handler of a signal has come here
        while this one did."""
        if self._recorder is None or not self._lock.acquire(blocking=False):
            return
        try:
            if self._recorder.exists and len(self._calls) < _MOST_CALLS:
                self._calls += self._recorder.drain()
        finally:
            self._lock.release()

    def _drain_if_urgent(self) -> None:
        if self._recorder is not None and self._recorder.exists and self._recorder.is_urgent():
            self._drain()

    def _flush(self) -> None:
        """Write what was collected since the last time. Calls first: a reader takes the steps that
        end before the last of them were read.

        Raises:
            OSError: it cannot be written; what there is stays for the next time.
        """
        assert self._recorder is not None  # noqa: S101 - the thread begins after it is there
        if self._folder.path is None:
            self._open()
        with self._lock:
            calls, self._calls = self._calls, []
            lengths = self._recorder.take_lengths()
        self._folder.add("calls", [value for call in calls for value in call])
        self._folder.add("lengths", lengths)
        self._folder.add("shares", self._sampler.take_shares())
        self._folder.add("samples", self._sampler.take_samples())
        self._memory.read()
        self._folder.add("memory", self._memory.take())
        self._folder.add("marks", self.marks.take())
        self._folder.write_names(self._recorder, self.peers, self._sampler)
        self._folder.write_segments()
        self._folder.write_checkpoints(self.checkpoints)
        self._folder.write_compilations(self.compilations)
        if self.marks.has_lost:
            self._problem = "moments are missing: nothing could be written for too long"
        elif self._problem and not self._folder.has_lost:
            self._problem = ""  # there is room again, and nothing is missing
        self._refresh_facts()
        self._flushes += 1
        if self._flushes % _USE_EVERY == 1:
            self._write_use()

    def _refresh_facts(self) -> None:
        """What a program does after its first step or group: it uses a device, makes groups. What it
        used stays after it has destroyed them."""
        now = {
            "device": facts.device(),
            "backend": facts.backend() or self._facts["backend"],
            "startup": self.startup.facts(),
            "is_in_thread": program_thread.is_in_thread(),
        }
        if not now.items() <= self._facts.items():
            self._facts |= now
            self._write_facts("running")

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
        rank = self._facts["rank"]
        leave_dump(request.with_name(f"autopsy-rank-{rank}.json"), rank)

    def _write_use(self) -> None:
        assert self._recorder is not None  # noqa: S101 - as above
        self._folder.write_use(self._recorder, self._memory.device)

    def _write_facts(self, state: str) -> None:
        self._folder.write_facts({**self._facts, "state": state, "problem": self._problem})

    def _show_problem(self) -> None:
        """Write down what has failed, or no longer does."""
        if self._problem == self._shown_problem:
            return
        with contextlib.suppress(OSError):
            self._write_facts("failed" if self._has_failed else "running")
            self._shown_problem = self._problem

    def _guarded(self, action: Callable[[], object]) -> None:
        """Do it. A full disk loses what could not be written; whatever else fails ends the
        collection, and nothing is done after that."""
        if self._has_failed:
            return
        try:
            action()
        except OSError as error:
            self._problem = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - a job runs on whatever fails here
            self._has_failed = True
            self._problem = f"{type(error).__name__}: {error}"
            self._stop()


_OF_A_FAULT = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}
"""Signals that a thread raises for itself."""


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    """A thread that is started meanwhile takes no signals: they are for threads of the program. A
    write beyond the limit of a file's size is an error in it and no signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_A_FAULT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _at_exit(action: Callable[[], None]) -> None:
    """Call it as the process ends: a process that ``multiprocessing`` has forked passes by
    ``atexit``."""
    atexit.register(guarded, action)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize  # noqa: PLC0415 - such a process has it

        Finalize(None, guarded, args=(action,), exitpriority=_LAST)


_LAST = -1
"""Of what such a process does at its end: first come the program's own, from 0 on."""
