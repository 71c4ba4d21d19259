"""The state of a launch that has ended. It follows from the ranks' records and errors, never from
torchrun's exit code alone: that is 1 for every cause, and a rank can abort in its teardown after it
has finished."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from torchscale.launch.kinds import launch_kind
from torchscale.schema.cells.kinds import AnyPayload
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.state import State

_SECONDARY_SIGNALS = {signal.SIGTERM, signal.SIGABRT}
"""Signals that can follow from the end of another rank: torchrun sends TERM to the others, NCCL's
watchdog aborts. They count as the cause only if there is no other."""
_OUT_OF_MEMORY = "OutOfMemoryError"
"""What torch raises; a user's script writes no other record of it than its log."""
_UNCAUGHT_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}


class EndingKind(Enum):
    """Why the launcher stopped waiting for the ranks."""

    FINISHED = "finished"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"
    NODE_LOST = "node lost"


@dataclass(frozen=True)
class LaunchEnding:
    """How torchrun ended, or another ``program`` that runs its agent. ``survivors`` names processes
    of the launch that could not be terminated. ``shortfall``: what a user's script that ended in
    order lacks for a measurement; ``None`` for launches of built-in models."""

    kind: EndingKind
    exit_code: int | None
    detail: str
    survivors: tuple[str, ...] = ()
    program: str = "torchrun"
    shortfall: str | None = None


@dataclass(frozen=True)
class LaunchEvidence:
    """Everything that decides the state of a launch that has ended.

    Attributes:
        world_size: Ranks that should have left a record.
        payload: Records of the ranks that left one.
        failures: Failures that ranks wrote, earliest first.
        exit_codes: rank → exit code, for the ranks that torchrun saw fail.
        oom_kills: The kernel's out-of-memory kills during the launch.
        torchrun_error: The exception that ended torchrun itself, in a line; empty for none.
        logged_errors: rank → the last exception in its log, in a line.
        damaged_ranks: Ranks whose record is there and cannot be used.
        damage: What is wrong with files that cannot be used, each with its node; empty for none.
        missing: Which records are not there, where another node should have sent one; empty for
            none.
    """

    ending: LaunchEnding
    world_size: int
    payload: AnyPayload
    failures: tuple[RankFailure, ...]
    exit_codes: dict[int, int]
    oom_kills: int
    torchrun_error: str = ""
    logged_errors: Mapping[int, str] = field(default_factory=dict)
    damaged_ranks: frozenset[int] = frozenset()
    damage: str = ""
    missing: str = ""


def classify(evidence: LaunchEvidence) -> tuple[State, str]:
    """The state of a launch, and the reason in words unless it is ``ok``."""
    kind = evidence.ending.kind
    if len(evidence.payload.ranks) == evidence.world_size:
        invalid = launch_kind(evidence.payload.kind).invalid_reason(evidence.payload)
        if invalid:
            return State.INVALID, invalid
        return State.OK, ""
    if kind is EndingKind.INTERRUPTED:
        return State.INTERRUPTED, evidence.ending.detail
    if kind is EndingKind.NODE_LOST:
        return State.NODE_LOST, evidence.ending.detail
    if kind is EndingKind.NOT_STARTED:
        return State.CRASHED, evidence.ending.detail
    if kind is EndingKind.TIMEOUT:
        return State.TIMEOUT, evidence.ending.detail
    if evidence.ending.shortfall:
        return State.INVALID, evidence.ending.shortfall
    state, reason = _judge_failures(evidence)
    if evidence.damage and evidence.damage not in reason:
        reason += f"; {evidence.damage}"
    return state, reason


def _judge_failures(evidence: LaunchEvidence) -> tuple[State, str]:
    """The state and its cause where not every rank left a record."""
    for failure in evidence.failures:
        if failure.kind is FailureKind.OOM:
            return State.OOM, f"rank {failure.rank}: {_first_line(failure.message)}"
    silent = _silent_ranks(evidence)
    signals = {rank: -code for rank in silent if (code := evidence.exit_codes.get(rank, 0)) < 0}
    for rank, number in signals.items():
        if number not in _SECONDARY_SIGNALS:
            return _judge_signal(rank, number, evidence.oom_kills)
    for failure in evidence.failures:
        if failure.kind is FailureKind.ERROR:
            return (
                State.CRASHED,
                f"rank {failure.rank}: {failure.type}: {_first_line(failure.message)}",
            )
        if failure.kind is FailureKind.LEFT_EARLY:
            return _judge_departure(evidence, silent)
    exited = next((rank for rank in silent if evidence.exit_codes.get(rank, 0) > 0), None)
    # Ranks of a user's script write no errors: one that exited is the cause of what torchrun sent.
    if exited is not None and (not signals or evidence.ending.shortfall is not None):
        return _judge_exit(evidence, exited, evidence.exit_codes[exited])
    for rank, number in sorted(signals.items(), key=lambda item: item[1] == signal.SIGTERM):
        return _judge_signal(rank, number, evidence.oom_kills)
    return _judge_departure(evidence, silent)


def _judge_exit(evidence: LaunchEvidence, rank: int, code: int) -> tuple[State, str]:
    """The state where a rank exited with ``code`` and left nothing but its log."""
    logged = evidence.logged_errors.get(rank, "")
    if _OUT_OF_MEMORY in logged:
        return State.OOM, f"rank {rank}: {logged[:300]}"
    left = "wrote no error"
    if logged:
        left = f"its log ends with {logged[:300]}"
    elif evidence.torchrun_error:  # it could not begin, as without space for its log
        left += f"; {evidence.ending.program}'s log ends with {evidence.torchrun_error[:300]}"
    return State.CRASHED, f"rank {rank} exited with {code} and {left}"


def _judge_departure(evidence: LaunchEvidence, silent: Sequence[int]) -> tuple[State, str]:
    """The state where no error and no signal of a rank explains the end."""
    code = evidence.ending.exit_code
    left_early = [
        failure.rank for failure in evidence.failures if failure.kind is FailureKind.LEFT_EARLY
    ]
    if code is not None and code < 0 and not left_early:
        return State.KILLED, f"{evidence.ending.program} was killed by {_signal_name(-code)}"
    if (
        not left_early
        and code not in (0, None)
        and evidence.torchrun_error
        and not evidence.exit_codes
    ):
        state = State.OOM if _OUT_OF_MEMORY in evidence.torchrun_error else State.CRASHED
        return state, f"{evidence.ending.program} failed: {evidence.torchrun_error[:300]}"
    if evidence.ending.shortfall is not None and code:
        return State.CRASHED, f"{evidence.ending.program} exited with {code}"
    departed = left_early or [rank for rank in silent if rank not in evidence.damaged_ranks]
    if not departed and evidence.damaged_ranks:
        return State.INCOMPLETE, evidence.damage
    if not departed:
        first = evidence.failures[0]
        return State.CRASHED, f"rank {first.rank}: {first.type}: {_first_line(first.message)}"
    ranks = f"rank{'s' * (len(departed) > 1)} {', '.join(map(str, departed))}"
    reason = f"{ranks} exited before the measurement was complete, without an error"
    return State.INCOMPLETE, "; ".join(filter(None, (reason, evidence.missing)))


def _judge_signal(rank: int, number: int, oom_kills: int) -> tuple[State, str]:
    name = _signal_name(number)
    if number == signal.SIGKILL and oom_kills > 0:
        return State.OOM, f"rank {rank} was killed by the kernel: the host ran out of memory"
    if number in _UNCAUGHT_FAULTS:
        return State.CRASHED, f"rank {rank} crashed with {name}"
    return State.KILLED, f"rank {rank} was killed by {name}, which torchscale did not send"


def _silent_ranks(evidence: LaunchEvidence) -> list[int]:
    """Ranks that left neither a record nor an error."""
    reported = {record.rank for record in evidence.payload.ranks} | {
        failure.rank for failure in evidence.failures
    }
    return [rank for rank in range(evidence.world_size) if rank not in reported]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][
        :300
    ]  # one line of a table; the whole text is in the failure


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
