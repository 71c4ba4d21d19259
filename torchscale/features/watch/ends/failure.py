"""Why an attempt of a watched job failed: which rank ended first, how, and what is a
consequence."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence

from torchscale.features.watch.ends.failed_attempt import FailedAttempt
from torchscale.features.watch.ends.others import other_ends
from torchscale.features.watch.ends.ranks import (
    RankEnd,
    alike,
    is_consequence,
    rank_ends,
    received_signal,
    signal_name,
)
from torchscale.features.watch.ends.unjoined import (
    never_joined,
    unjoined_evidence,
    unjoined_summary,
)
from torchscale.features.watch.hang.stacks import collective_in
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.util.text import ranks_label
from torchscale.util.units import format_bytes
from torchscale.util.words import plural

_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]{1,200})\) "
    r"(?:is killed by signal: (?P<signal>[\w ]{1,40})|exited unexpectedly)"
)
_SEEN_LATE_SECONDS = 0.15
"""After its end, by which torchrun notices that a rank has ended: it looks ten times a second."""
_SECONDARY = {-signal.SIGABRT}
"""Exit codes that may follow from the end of another rank, where that is not seen: libraries abort
a process that has lost a peer."""
_MOST_SHOWN = 8
_NAMED_SIGNALS = {"Killed": "SIGKILL", "Bus error": "SIGBUS", "Segmentation fault": "SIGSEGV"}
"""``strsignal`` of the signals that end loader workers → their names."""
_SHARED = "/dev/shm"  # noqa: S108 - only looked at


def find_failure(attempt: FailedAttempt) -> JobFailure | None:
    """Why it failed; ``None`` where nothing says that it did."""
    received = received_signal(attempt.ends)
    if received:
        return JobFailure(
            cause=FailureCause.INTERRUPTED,
            attempt=attempt.number,
            exit_code=attempt.exit_code,
            signal=received,
            summary=f"torchrun received {received} and ended its ranks",
        )
    ends = [end for end in rank_ends(attempt.ends, attempt.ranks) if _tells(end)]
    if not ends:
        return _of_program(attempt)
    first = _first(ends)
    if first.is_interrupted:
        return None
    failure = _of_first(attempt, first, ends)
    evidence = (*failure.evidence, *other_ends(ends, first), *attempt.kernel.lines)
    return failure.model_copy(
        update={
            "rank": None if first.is_gone and len(alike(first, ends)) > 1 else first.rank,
            "host": first.host,
            "attempt": attempt.number,
            "world_size": max(1, attempt.world_size),
            "exit_code": _code(attempt, first),
            "signal": first.signal,
            "error": first.error,
            "message": first.message,
            "place": first.place,
            "evidence": evidence,
        }
    )


def _tells(end: RankEnd) -> bool:
    return bool(end.error or end.frames or end.exit_code or end.is_gone)


def _first(ends: Sequence[RankEnd]) -> RankEnd:
    """The end that came first, of those that follow from no other."""
    ranks = [end for end in ends if end.rank is not None] or list(ends)
    causes = [end for end in ranks if not is_consequence(end, ends)] or ranks
    primary = [end for end in causes if end.exit_code not in _SECONDARY or end.error] or causes
    return min(primary, key=lambda end: end.time - _SEEN_LATE_SECONDS * (not end.is_exact))


def _code(attempt: FailedAttempt, first: RankEnd) -> int | None:
    """Of the process that ended first: that of the program, where it is the only one."""
    if first.exit_code is not None or attempt.world_size > 1:
        return first.exit_code if (first.exit_code or 0) >= 0 else None
    return attempt.exit_code


def _of_program(attempt: FailedAttempt) -> JobFailure | None:
    """Where no process left anything, the program's exit code is all."""
    code = attempt.exit_code
    if not code or code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return None
    if code > 128:
        name = signal_name(code - 128)
        cause, said = FailureCause.SIGNAL, f"{attempt.program} was ended by {name}"
        if name == "SIGKILL" and attempt.oom_kills:
            cause, said = FailureCause.OOM_KILL, f"{said}, and {_killed(attempt.oom_kills)}"
        return JobFailure(
            cause=cause,
            attempt=attempt.number,
            signal=name,
            summary=said,
            evidence=attempt.kernel.lines,
        )
    return JobFailure(
        cause=FailureCause.EXIT,
        attempt=attempt.number,
        exit_code=code,
        summary=f"{attempt.program} exited with code {code} and left no traceback of Python",
        evidence=attempt.kernel.lines,
    )


def _of_first(attempt: FailedAttempt, first: RankEnd, ends: Sequence[RankEnd]) -> JobFailure:
    """The cause and its sentence."""
    who = _who(attempt, first, ends)
    missing = never_joined(first, ends, attempt.waits, attempt.ranks, attempt.world_size)
    if missing:
        return JobFailure(
            cause=FailureCause.NOT_JOINED,
            summary=unjoined_summary(missing, who, first.place),
            evidence=(unjoined_evidence(missing, ends), f"{who} raised {first.first_line}"),
        )
    at = f" at {first.place}" if first.place and not first.is_launcher else ""
    if first.error:
        return _of_exception(attempt, first, f"{who} raised {first.first_line}{at}", who)
    autopsy = None
    if first.exit_code in _SECONDARY:
        autopsy = attempt.collectives(ends)
    if autopsy is not None:
        summary = f"{autopsy.summary}; {who} was ended by {first.signal}"
        return JobFailure(
            cause=FailureCause.COLLECTIVES,
            summary=summary,
            evidence=autopsy.evidence,
            autopsy=autopsy,
        )
    if first.exit_code is not None and first.exit_code > 0:
        said = f"{who} exited with code {first.exit_code} and left no traceback"
        return JobFailure(cause=FailureCause.EXIT, summary=said, evidence=(_SILENT_EXIT,))
    if first.is_gone:
        said = f"{who} was gone: it left no exception, as a process that is killed"
        if len(alike(first, ends)) > 1:
            said = f"{who} were gone: they left no exception, as processes that are killed"
        evidence = tuple(_memory(attempt)) if first.pid in attempt.kernel.killed else (_GONE,)
        return JobFailure(cause=FailureCause.SIGNAL, summary=said, evidence=evidence)
    name = first.signal or "a signal"
    operation = collective_in(first.frames)
    said = f"{who} was ended by {name}{f' in {operation}' if operation else ''}{at}"
    if name == "SIGKILL" and (first.pid in attempt.kernel.killed or attempt.oom_kills):
        if first.pid in attempt.kernel.killed:
            said = f"{who} was killed by the kernel ({name}): out of memory"
        else:
            said = f"{said}, and {_killed(attempt.oom_kills)}"
        evidence = tuple(_memory(attempt))
        return JobFailure(cause=FailureCause.OOM_KILL, summary=said, evidence=evidence)
    evidence = (_UNSEEN_KILL,) if name == "SIGKILL" else ()
    if name == "SIGABRT":
        evidence = (_ABORTED,)
    return JobFailure(cause=FailureCause.SIGNAL, summary=said, evidence=evidence)


_SILENT_EXIT = "a process leaves none that calls sys.exit or os._exit, or that is no Python"
_GONE = "what started it may have noted its exit code or signal: `ray logs`, or the scheduler's log"
_UNSEEN_KILL = (
    "the kernel counts no process that it killed for lack of memory: somebody, or a limit of the "
    "batch system, sent the signal"
)
_ABORTED = (
    "a library ended the process (gloo does so where another rank calls a different collective and "
    "sends more than it expects, NCCL's watchdog after a time-out): its reason is in the output of "
    "the program"
)


def _of_exception(attempt: FailedAttempt, first: RankEnd, summary: str, who: str) -> JobFailure:
    if first.where:
        summary += f" in {first.where}"
    worker = _WORKER.search(first.text)
    if worker is not None:
        return _of_loader(attempt, first, worker, who)
    if first.has_lost_worker:
        said = f"a DataLoader worker of {who} was gone as it handed over a batch"
        at = f" at {first.place}" if first.place else ""
        evidence = (f"{who} raised {first.first_line}", *_shared_memory())
        return JobFailure(
            cause=FailureCause.LOADER_WORKER, summary=f"{said}{at}", evidence=evidence
        )
    if first.is_out_of_memory:
        return JobFailure(
            cause=FailureCause.OUT_OF_MEMORY, summary=summary, evidence=tuple(_memory(attempt))
        )
    autopsy = attempt.collectives([first]) if first.is_lost_peer else None
    if first.is_lost_peer:
        evidence = ("no other rank left a reason to end",)
        if attempt.hosts > 1 or len(attempt.ranks) < attempt.world_size:
            evidence = ("no rank here left a reason to end: look at the ranks of other hosts",)
        return JobFailure(
            cause=FailureCause.PEER_LOST, summary=summary, evidence=evidence, autopsy=autopsy
        )
    return JobFailure(cause=FailureCause.EXCEPTION, summary=summary)


def _of_loader(
    attempt: FailedAttempt, first: RankEnd, match: re.Match[str], who: str
) -> JobFailure:
    """A rank that lost a worker of its data loader."""
    pids = match["pids"].strip()
    said = (match["signal"] or "").strip()
    name = _NAMED_SIGNALS.get(said, said)
    at = f" at {first.place}" if first.place else ""
    verb = f"was killed by {name}" if name else "exited unexpectedly"
    summary = f"a DataLoader worker (pid {pids}) of {who} {verb}{at}"
    evidence = []
    killed = [pid for pid in pids.split(",") if int(pid or 0) in attempt.kernel.killed]
    if name == "SIGKILL" and (killed or attempt.oom_kills):
        evidence.append(_killed(attempt.oom_kills or len(killed)))
    elif name == "SIGKILL":
        evidence.append(_UNSEEN_KILL)
    if name in ("SIGBUS", "") or "shm" in first.text:
        evidence += _shared_memory()
    return JobFailure(cause=FailureCause.LOADER_WORKER, summary=summary, evidence=tuple(evidence))


def _shared_memory() -> list[str]:
    """Workers hand over batches there: a full one ends them by SIGBUS."""
    try:
        space = shutil.disk_usage(_SHARED)
    except OSError:
        return []
    return [
        f"workers hand over batches in {_SHARED}, which has {format_bytes(space.total)}, now "
        f"{format_bytes(space.free)} of it free; a worker that finds it full ends by SIGBUS"
    ]


def _killed(count: int) -> str:
    return f"the kernel killed {plural(count, 'process')} for lack of memory meanwhile"


def _memory(attempt: FailedAttempt) -> list[str]:
    """What every rank held last."""
    found = []
    for rank, use in sorted(attempt.uses.items())[:_MOST_SHOWN]:
        parts = []
        if use.peak_memory_bytes:
            parts.append(f"up to {format_bytes(use.peak_memory_bytes)} resident")
        if use.peak_allocated_bytes is not None and use.peak_reserved_bytes is not None:
            parts.append(
                f"up to {format_bytes(use.peak_allocated_bytes)} allocated and "
                f"{format_bytes(use.peak_reserved_bytes)} reserved on its device"
            )
        if parts:
            found.append(f"rank {rank} held {', '.join(parts)}, as of its last note")
    return found


def _who(attempt: FailedAttempt, first: RankEnd, ends: Sequence[RankEnd]) -> str:
    """``rank 3 (node-a)``; ``ranks 0-3`` where all ended alike."""
    if first.is_launcher:
        return "torchrun"
    if first.rank is None or attempt.world_size <= 1:
        return attempt.program
    same = [end.rank for end in alike(first, ends) if end.rank is not None]
    if len(same) > 1:
        return ranks_label(same)
    if attempt.hosts > 1:
        return f"rank {first.rank} ({first.host})"
    return f"rank {first.rank}"
