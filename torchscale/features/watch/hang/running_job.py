"""The ranks of a job that runs on this machine, whoever started it: read from /proc, py-spy and
NCCL's RAS service.

Nothing is written and no signal is sent: a process that does not expect one may end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from torchscale.errors import TraceError, UsageError
from torchscale.features.watch.hang.activity import Activity
from torchscale.features.watch.hang.collective_log import CollectiveLog
from torchscale.features.watch.hang.evidence import process_condition
from torchscale.features.watch.hang.flight_recorder import MAX_DUMP_BYTES, read_flight_recorder
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.nccl_ras import nccl_notes
from torchscale.features.watch.hang.py_spy import has_py_spy, py_spy_stacks
from torchscale.features.watch.hang.rank_activity import rank_activities
from torchscale.features.watch.hang.source_loops import outermost_loops
from torchscale.features.watch.hang.stacks import LineRange
from torchscale.schema.launch.hang import RankCondition, StackFrame
from torchscale.util.files import read_bounded
from torchscale.util.installation import library_command
from torchscale.util.processes.description import rank_environment
from torchscale.util.text import agreeing, ranks_label

_MAX_RANKS = 1024
_MAX_NAMED_JOBS = 4
_BUSY_SHARE = 0.5
_DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Where torch's watchdog dumps the flight recorder when a collective times out; the rank is
appended."""


@dataclass(frozen=True)
class _Rank:
    """A rank on this machine, how many there are in the job and on this machine, where torch writes
    its dumps, and where the ranks meet."""

    process: psutil.Process
    world_size: int
    local_rank: int
    local_world_size: int
    dump_prefix: str = ""
    meets_at: str = ""


def has_ranks(pid: int) -> bool:
    """Whether a process has ranks below it, or is one; also where that cannot be read."""
    try:
        return bool(_ranks(psutil.Process(pid)))
    except psutil.Error:
        return True


def inspect_job(pid: int) -> tuple[list[RankEvidence], tuple[str, ...]]:
    """The ranks below ``pid``, or beside it if it is one, and what else is known, a line each.

    Raises:
        UsageError: there is no such process, or it has no ranks, or those of several jobs.
    """
    try:
        ranks = _only_job(pid, _ranks(psutil.Process(pid)))
    except psutil.NoSuchProcess as error:
        raise UsageError(
            f"no process {pid}", hint="pass the PID of torchrun or of one of its ranks"
        ) from error
    except psutil.AccessDenied as error:
        raise UsageError(
            f"process {pid} belongs to another user", hint="run this as its user or as root"
        ) from error
    if not ranks:
        raise UsageError(
            f"process {pid} has no ranks: RANK and WORLD_SIZE are in the environment of none of "
            "its children",
            hint="pass the PID of torchrun or of one of its ranks, as the user who started it; a "
            "torchrun has none before it has met those of other nodes",
        )
    activities, shares = rank_activities({rank: found.process for rank, found in ranks.items()})
    if len(ranks) < max(found.world_size for found in ranks.values()):
        activities = dict.fromkeys(ranks)  # ranks on other machines may compute
    conditions = {rank: process_condition(found.process) for rank, found in ranks.items()}
    running = [rank for rank in ranks if conditions[rank] is RankCondition.RUNNING]
    stacks = py_spy_stacks({rank: ranks[rank].process.pid for rank in running})
    evidence = [
        RankEvidence(
            rank,
            conditions[rank],
            stacks.get(rank, ()),
            _dumped(rank, found),
            pid=found.process.pid,
            activity=activities[rank],
            loops=_loops(found.process, stacks.get(rank, ())),
            world_size=found.world_size,
            meets_at=found.meets_at,
        )
        for rank, found in sorted(ranks.items())
    ]
    evidence += [RankEvidence(rank, RankCondition.GONE) for rank in _gone(ranks)]
    notes = [*_states(evidence, shares), *_unseen(ranks, evidence)]
    return evidence, (*notes, *nccl_notes(found.process.pid for found in ranks.values()))


def _only_job(pid: int, found: Sequence[tuple[int, _Rank]]) -> dict[int, _Rank]:
    """Rank → process of the one job among them, or of the job that ``pid`` is a rank of. Of a rank
    the process nearest to torchrun counts: its own children inherit its environment.

    Raises:
        UsageError: there are several jobs.
    """
    jobs: dict[tuple[int, str], dict[int, _Rank]] = {}
    for number, rank in found:
        job = jobs.setdefault((rank.world_size, rank.meets_at), {})
        if len(job) < _MAX_RANKS:
            job.setdefault(number, rank)
    own = [job for job in jobs.values() if any(one.process.pid == pid for one in job.values())]
    chosen = own or list(jobs.values())
    if len(chosen) > 1:
        first = [job[min(job)].process.pid for job in chosen]
        raise UsageError(
            f"process {pid} has {len(chosen)} jobs below it",
            hint="name a rank of one: "
            + ", ".join(f"torchscale autopsy {rank}" for rank in first[:_MAX_NAMED_JOBS]),
        )
    return dict(chosen[0]) if chosen else {}


def _states(evidence: Sequence[RankEvidence], shares: Mapping[int, float]) -> list[str]:
    """Whether each rank computes, or how to continue it."""
    notes = []
    for rank in evidence:
        if rank.condition is RankCondition.RUNNING:
            activity = "mostly idle"
            if rank.activity is Activity.BUSY or shares[rank.rank] > _BUSY_SHARE:
                activity = "busy"
            notes.append(f"rank {rank.rank}: pid {rank.pid}, {activity}")
        if rank.condition is RankCondition.STOPPED:
            notes.append(
                f"rank {rank.rank}: pid {rank.pid} is stopped; kill -CONT {rank.pid} continues it"
            )
    return notes


def _unseen(ranks: Mapping[int, _Rank], evidence: Sequence[RankEvidence]) -> list[str]:
    """What could not be looked at."""
    notes = []
    size = max(found.world_size for found in ranks.values())
    known = {rank.rank for rank in evidence}
    unseen = [rank for rank in range(min(size, _MAX_RANKS)) if rank not in known]
    if unseen:
        were = agreeing(unseen, "was", "were")
        notes.append(f"{ranks_label(unseen)} {were} not found on this machine")
    if not has_py_spy():
        notes.append(f"py-spy is not installed: stacks are unknown ({library_command('py-spy')})")
    elif not any(rank.frames for rank in evidence):
        notes.append("py-spy could not read the ranks: it needs root or the capability SYS_PTRACE")
    return notes


def _ranks(process: psutil.Process) -> list[tuple[int, _Rank]]:
    """The ranks below the launcher of ``process``, each with its number; parents come before their
    children.

    Raises:
        psutil.Error: ``process`` cannot be read.
    """
    while (parent := process.parent()) is not None and _rank(process) is not None:
        process = parent
    known = map(_rank, process.children(recursive=True))
    return [rank for rank in known if rank is not None]


def _rank(process: psutil.Process) -> tuple[int, _Rank] | None:
    """A process's rank, from its environment; ``None`` for one that is none."""
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        variables = rank_environment(process)
        if "RANK" in variables and "WORLD_SIZE" in variables:
            rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
            local, local_size = (
                int(variables.get("LOCAL_RANK", 0)),
                int(variables.get("LOCAL_WORLD_SIZE", 0)),
            )
            if 0 <= local <= rank < size:
                prefix = next(
                    (variables[name] for name in _DUMP_VARIABLES if variables.get(name)), ""
                )
                return rank, _Rank(process, size, local, local_size, prefix, _address(variables))
    return None


def _address(variables: Mapping[str, str]) -> str:
    """``host:port`` at which ranks meet that are told nothing else; empty without."""
    host, port = variables.get("MASTER_ADDR", ""), variables.get("MASTER_PORT", "")
    return f"{host}:{port}" if host and port else ""


def _dumped(rank: int, found: _Rank) -> CollectiveLog | None:
    """What torch has dumped of a rank since its process started; ``None`` where there is nothing,
    as until a collective times out."""
    path = Path(f"{found.dump_prefix}{rank}")
    try:
        if not found.dump_prefix or path.stat().st_mtime < found.process.create_time():
            return None
        return read_flight_recorder(read_bounded(path, MAX_DUMP_BYTES))
    except (OSError, TraceError, psutil.Error):
        return None


def _gone(ranks: dict[int, _Rank]) -> list[int]:
    """Ranks of this machine that have no process: torchrun numbers those of a machine one after the
    other."""
    rank, found = next(iter(ranks.items()))
    first = rank - found.local_rank
    return [
        number
        for number in range(first, first + min(found.local_world_size, _MAX_RANKS))
        if number not in ranks
    ]


def _loops(process: psutil.Process, frames: tuple[StackFrame, ...]) -> tuple[LineRange | None, ...]:
    """The loops that a stack is in; none where the process has ended or its source cannot be
    read."""
    try:
        return outermost_loops(frames, Path(f"/proc/{process.pid}/root"), process.create_time())
    except psutil.Error:
        return ()
