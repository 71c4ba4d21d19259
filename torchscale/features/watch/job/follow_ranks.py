"""Follows ranks that another program has started: each machine's first one asks for it.

One process follows a folder. It goes on when ranks of a failed attempt are started anew, and ends
when all ranks of its machine have.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from torchscale.features.watch.ends.files import ENDS
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.liveness import give_sign
from torchscale.features.watch.job.program_processes import command_of, has_ended
from torchscale.features.watch.job.run import (
    FollowedJob,
    ProgramEnding,
    Watched,
    WatchRequest,
    finished,
    follow,
)
from torchscale.features.watch.job.runs import begin_run
from torchscale.schema.watch.ends import ProcessEnd
from torchscale.schema.watch.rank import RankFacts
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import atomic_write_model, make_directory
from torchscale.worker.watch import clock

_LOCK = "follower.lock"
_LOCK_SECONDS = 1.0
"""Between two looks whether another process still follows the folder."""
_RESTART_SECONDS = 60.0
"""For which ranks of a failed attempt may come again: Ray starts workers anew in
some seconds where nodes are there. Later ones are a new run of the job."""
_LOOK_SECONDS = 0.5


def follow_ranks(
    directory: Path, pid: int, *, name: str | None = None, role: str = ""
) -> Watched | None:
    """Follow a job that is not ours, until the process ``pid`` and all other ranks of this machine
    have ended; ``None`` where another process does.

    Args:
        directory: Of the job.
        pid: Of its first rank here.
        name: Of the program; ``None`` for its command line.
        role: What the program does in its job; empty where it is all of it.

    Raises:
        OutputError: the folder cannot be written.
    """
    with _only_follower(directory, pid) as is_only:
        if not is_only:
            return None
        command = command_of(pid) if name is None else (name,)
        request = WatchRequest(command, directory.absolute(), role=role)
        clock.begin()
        started = clock.now()
        past = begin_run(directory, started, starts_program=False)
        job = WatchedJob(directory, command, started, past=past, role=role)
        watching = FollowedJob(request, request.directory, past, job)
        ranks = _LocalRanks(job, request.directory, pid)
        follow(watching, ranks.have_ended)
        while _come_again(watching, ranks):
            follow(watching, ranks.have_ended)
        return finished(watching, ProgramEnding())


@contextlib.contextmanager
def _only_follower(directory: Path, pid: int) -> Iterator[bool]:
    """Whether this process is the one that follows the folder: where another one does, not before
    that ends, and not if the rank has ended by then, which the other one saw."""
    with (directory / _LOCK).open("a") as lock:
        is_first = True
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_first = False
            except OSError:  # a file system without locks
                break
            else:
                break
            if has_ended(pid, _LOCK_SECONDS):
                yield False
                return
        yield is_first or not has_ended(pid, 0.0)


def _come_again(watching: FollowedJob, ranks: _LocalRanks) -> bool:
    """Whether a failed attempt is followed by another one; what is known of it is written before
    that is waited for."""
    job = watching.job
    job.guarded(partial(job.explain_end, None))
    if job.ends.failure is None:
        return False
    job.guarded(job.judge)
    report = job.report(clock.now(), is_over=True)
    job.guarded(partial(atomic_write_model, watching.directory / WATCH_REPORT, report))
    attempt, deadline = job.attempts[-1].number, time.monotonic() + _RESTART_SECONDS
    while time.monotonic() < deadline:
        give_sign(watching.directory)
        job.guarded(job.advance)
        if job.attempts[-1].number > attempt:
            job.ends.failure = None
            return True
        if ranks.are_interrupted:
            return False
        time.sleep(_LOOK_SECONDS)
    return False


@dataclass
class _LocalRanks:
    """Ranks of a job that run on this machine.

    Attributes:
        job: Which.
        directory: Its folder.
        pid: Of the first one.
        noted: PIDs of those whose end was noted here.
    """

    job: WatchedJob
    directory: Path
    pid: int
    noted: set[int] = field(default_factory=set)

    @property
    def are_interrupted(self) -> bool:
        """Whether somebody ended them on purpose."""
        failure = self.job.ends.failure
        return failure is not None and failure.cause.value == "interrupted"

    def have_ended(self, seconds: float) -> bool:
        """Whether all end within so many seconds, or have."""
        if not has_ended(self.pid, seconds):
            self._note_gone()
            return False
        self.job.guarded(self.job.advance)
        alive = self._note_gone()
        if alive:
            has_ended(alive[0].pid, seconds)
        return not alive

    def _note_gone(self) -> Sequence[RankFacts]:
        """Leave a note on each that is gone without having noted its own end; those that are
        there."""
        host = socket.gethostname()
        here = [stream.facts for stream in self.job.streams.values() if stream.facts.host == host]
        alive = [facts for facts in here if psutil.pid_exists(facts.pid) and not _is_zombie(facts)]
        gone = {facts.pid for facts in here} - {facts.pid for facts in alive} - self.noted
        if gone:
            self.job.guarded(self.job.advance)  # what they noted last
            for rank, stream in self.job.streams.items():
                if stream.facts.pid in gone and stream.facts.host == host:
                    self.noted.add(stream.facts.pid)
                    self.job.guarded(partial(self._note, rank, stream.facts))
        return alive

    def _note(self, rank: int, facts: RankFacts) -> None:
        if facts.state != "running" or not facts.is_in_thread:
            return
        end = ProcessEnd(
            format=1,
            kind="gone",
            pid=facts.pid,
            host=facts.host,
            rank=rank,
            world_size=facts.world_size,
            attempt=self.job.attempts[-1].number,
            time=clock.now(),
        )
        make_directory(self.directory / ENDS)
        name = f"gone-{facts.pid}-{os.getpid()}.json"
        atomic_write_model(self.directory / ENDS / name, end)


def _is_zombie(facts: RankFacts) -> bool:
    try:
        return psutil.Process(facts.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
