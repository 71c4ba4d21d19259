"""From the files that the ranks left to one record with one state. A launch is judged by its records, never by
torchrun's exit code alone: it is 1 for every cause, and a rank can abort in its teardown after its work is done."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from torchscale.analysis.launch_signals import digest_signals
from torchscale.analysis.stats import digest
from torchscale.analysis.telemetry import digest_telemetry
from torchscale.launch.nccl_log import read_nccl_log
from torchscale.launch.process import tail
from torchscale.launch.telemetry import read_readings
from torchscale.schema.collectives import CollectivesCell, CollectivesRank
from torchscale.schema.hardware import HardwareRank
from torchscale.schema.memory import MemoryRank
from torchscale.schema.record import (
    EpochSample,
    FailureKind,
    LaunchRecord,
    RankFailure,
    RankRecord,
    SignalDigest,
    State,
    StepDigest,
    StepSample,
)
from torchscale.schema.task import LaunchTask
from torchscale.schema.telemetry import Telemetry
from torchscale.units import format_bytes

_LOG_TAIL_CHARACTERS = 6000
_TORCHRUN_FAILURE = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")
_TORCHRUN_SIGNAL = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
_STACK_TOP = re.compile(r'(?:Current thread|Thread) 0x[0-9a-f]+[^\n]*\n  File "([^"]+)", line (\d+) in (\S+)')
_SECONDARY_SIGNALS = {signal.SIGTERM, signal.SIGABRT}
"""What can follow from another rank's end: torchrun sends TERM to the others, NCCL's watchdog aborts. Only without
another cause are they one."""
_UNCAUGHT_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}

M = TypeVar("M", bound=BaseModel)
AnyRank = RankRecord | CollectivesRank | HardwareRank | MemoryRank
_RANK_RECORDS: dict[str, type[AnyRank]] = {
    "training": RankRecord,
    "collectives": CollectivesRank,
    "hardware": HardwareRank,
    "memory": MemoryRank,
}


class EndingKind(Enum):
    """Why the launcher stopped watching."""

    FINISHED = "finished"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"


@dataclass(frozen=True)
class Ending:
    """How torchrun ended. ``survivors`` names processes of the launch that could not be ended."""

    kind: EndingKind
    exit_code: int | None
    detail: str
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What is known about a launch once it has ended.

    Attributes:
        world_size: Ranks that should have left a record.
        ranks: Records, by rank.
        failures: What ranks said before they died, earliest first.
        exit_codes: rank → exit code, for the ranks that torchrun saw fail.
        oom_kills: The kernel's out-of-memory kills during the launch.
    """

    ending: Ending
    world_size: int
    ranks: tuple[AnyRank, ...]
    failures: tuple[RankFailure, ...]
    exit_codes: dict[int, int]
    oom_kills: int


def collect_launch(
    task: LaunchTask,
    directory: Path,
    ending: Ending,
    *,
    command: tuple[str, ...],
    started_at: str,
    seconds: float,
    oom_kills: int,
) -> LaunchRecord:
    """The record of a launch that has ended. Removes the step files if the task does not keep them."""
    log = tail(directory / "torchrun.log", 64 * 1024)
    ending = _with_signal(ending, log)
    evidence = Evidence(
        ending,
        task.cell.world_size,
        tuple(_read_all(directory, "rank-*.json", _RANK_RECORDS[task.cell.kind], task.cell.world_size)),
        read_failures(directory, task.cell.world_size),
        {int(rank): int(code) for rank, code in _TORCHRUN_FAILURE.findall(log)},
        oom_kills,
    )
    state, reason = classify(evidence)
    if ending.kind is EndingKind.TIMEOUT:
        reason += _where_ranks_were(directory, task.cell.world_size)
    if ending.survivors:
        reason += f"; could not be ended: {', '.join(ending.survivors)}"
    trained = [rank for rank in evidence.ranks if isinstance(rank, RankRecord)]
    group, per_rank, signals = _digests(directory, trained)
    if not task.log_step_times:
        for path in directory.glob("steps-rank-*.jsonl"):
            path.unlink()
    return LaunchRecord(
        cell_id=task.cell.id,
        launch=task.launch,
        state=state,
        reason=reason,
        started_at=started_at,
        seconds=seconds,
        command=command,
        ranks=tuple(trained),
        collectives=tuple(rank for rank in evidence.ranks if isinstance(rank, CollectivesRank)),
        hardware=tuple(rank for rank in evidence.ranks if isinstance(rank, HardwareRank)),
        memory=tuple(rank for rank in evidence.ranks if isinstance(rank, MemoryRank)),
        telemetry=_telemetry(task, directory, trained),
        nccl_log=read_nccl_log(directory) if isinstance(task.cell, CollectivesCell) else None,
        failures=evidence.failures,
        exit_code=ending.exit_code,
        steps=group,
        rank_steps=per_rank,
        signals=signals,
        epochs=tuple(_read_lines(directory / "epochs.jsonl", EpochSample)),
        log_tail="" if state is State.OK else _log_tail(directory, log, task.cell.world_size),
    )


def _telemetry(task: LaunchTask, directory: Path, ranks: Sequence[RankRecord]) -> Telemetry | None:
    """What was read while every rank measured."""
    readings, used = read_readings(directory)
    starts = [rank.measured_from for rank in ranks if rank.measured_from is not None]
    ends = [rank.measured_until for rank in ranks if rank.measured_until is not None]
    if not starts or len(ends) < task.cell.world_size:
        return None
    return digest_telemetry(readings, max(starts), min(ends), gpus=task.gpu_uuids, sampler_cpu_seconds=used)


def read_failures(directory: Path, world_size: int) -> tuple[RankFailure, ...]:
    """What ranks said before they died, earliest first."""
    found = _read_all(directory, "error-rank-*.json", RankFailure, world_size)
    return tuple(sorted(found, key=lambda failure: failure.time))


def _with_signal(ending: Ending, log: str) -> Ending:
    """torchrun that was asked to end (by a batch system, say) exits with 1 and tells the signal in its log alone."""
    told = _TORCHRUN_SIGNAL.search(log)
    if ending.kind is not EndingKind.FINISHED or told is None:
        return ending
    return replace(ending, exit_code=-int(told[1]))


def classify(evidence: Evidence) -> tuple[State, str]:
    """The one state of a launch and, unless it is ``ok``, a reason for people."""
    kind = evidence.ending.kind
    if len(evidence.ranks) == evidence.world_size:
        return _judge_records(evidence.ranks)
    if kind is EndingKind.INTERRUPTED:
        return State.INTERRUPTED, evidence.ending.detail
    if kind is EndingKind.NOT_STARTED:
        return State.CRASHED, evidence.ending.detail
    if kind is EndingKind.TIMEOUT:
        return State.TIMEOUT, evidence.ending.detail
    return _judge_failures(evidence)


def _judge_records(ranks: Sequence[AnyRank]) -> tuple[State, str]:
    """Every rank has measured; are the figures to be trusted?"""
    for record in ranks:
        if isinstance(record, CollectivesRank) and (wrong := _wrong_result(record)):
            return State.INVALID, wrong
        if not isinstance(record, RankRecord):
            continue
        if not record.losses_finite:
            return State.INVALID, f"the loss of rank {record.rank} was not a finite number"
        if record.parameters_equal is False:
            return State.INVALID, (
                f"after the first steps the ranks held different parameters: {record.parameters_differing}; "
                "gradients were not reduced"
            )
        if not record.parameters_changed:
            return State.INVALID, "no parameter changed during warm-up: nothing was trained"
    return State.OK, ""


def _wrong_result(record: CollectivesRank) -> str:
    """The first wrong result of a rank; empty where all were right."""
    for sample in record.samples:
        if sample.wrong_elements:
            what = f"{sample.operation} of {format_bytes(sample.payload_bytes)} in {sample.dtype}"
            return f"{what}: {sample.wrong_elements:,} elements on rank {record.rank} were not what they must be"
    for pair in record.pairs:
        if pair.wrong_elements:
            what = f"a message from rank {pair.source} to {pair.target}"
            return f"{what}: {pair.wrong_elements:,} elements were not what was sent"
    return ""


def _judge_failures(evidence: Evidence) -> tuple[State, str]:
    """The true cause of a launch in which not every rank left a record."""
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
            return State.CRASHED, f"rank {failure.rank}: {failure.type}: {_first_line(failure.message)}"
        if failure.kind is FailureKind.LEFT_EARLY:
            return _judge_departure(evidence, silent)
    for rank, number in sorted(signals.items(), key=lambda item: item[1] == signal.SIGTERM):
        return _judge_signal(rank, number, evidence.oom_kills)
    for rank in silent:
        if (code := evidence.exit_codes.get(rank, 0)) > 0:
            return State.CRASHED, f"rank {rank} exited with {code} and said nothing"
    return _judge_departure(evidence, silent)


def _judge_departure(evidence: Evidence, silent: Sequence[int]) -> tuple[State, str]:
    """No error and no signal of a rank explains the end."""
    code = evidence.ending.exit_code
    left_early = [failure.rank for failure in evidence.failures if failure.kind is FailureKind.LEFT_EARLY]
    if code is not None and code < 0 and not left_early:
        return State.KILLED, f"torchrun was ended by {_signal_name(-code)}"
    left = left_early or silent
    if not left:
        first = evidence.failures[0]
        return State.CRASHED, f"rank {first.rank}: {first.type}: {_first_line(first.message)}"
    ranks = f"rank{'s' * (len(left) > 1)} {', '.join(map(str, left))}"
    return State.INCOMPLETE, f"{ranks} left before the measurement was done, without an error"


def _judge_signal(rank: int, number: int, oom_kills: int) -> tuple[State, str]:
    name = _signal_name(number)
    if number == signal.SIGKILL and oom_kills > 0:
        return State.OOM, f"rank {rank} was ended by the kernel: the host ran out of memory"
    if number in _UNCAUGHT_FAULTS:
        return State.CRASHED, f"rank {rank} died of {name}"
    return State.KILLED, f"rank {rank} was ended by {name}, which torchscale did not send"


def _silent_ranks(evidence: Evidence) -> list[int]:
    """Ranks that left neither a record nor an error."""
    heard = {record.rank for record in evidence.ranks} | {failure.rank for failure in evidence.failures}
    return [rank for rank in range(evidence.world_size) if rank not in heard]


def _digests(
    directory: Path, ranks: Sequence[RankRecord]
) -> tuple[StepDigest | None, tuple[StepDigest, ...], SignalDigest | None]:
    """Digest of the group's steps (per step the slowest rank), of each rank's, and of all for the diagnosis."""
    series = [_read_lines(directory / f"steps-rank-{record.rank}.jsonl", StepSample) for record in ranks]
    if not series or not all(series):
        return None, (), None
    per_rank = tuple(_step_digest(samples, [sample.seconds for sample in samples]) for samples in series)
    whole = len(ranks) == ranks[0].world_size and len({len(samples) for samples in series}) == 1
    if not whole:
        return None, per_rank, None
    slowest = [max(step.seconds for step in steps) for steps in zip(*series, strict=True)]
    everything = [sample for samples in series for sample in samples]
    batch_steps = [batch.steps for batch in ranks[0].batches]
    signals = digest_signals(series, batch_steps) if sum(batch_steps) == len(slowest) else None
    return _step_digest(everything, slowest), per_rank, signals


def _step_digest(samples: Sequence[StepSample], seconds: Sequence[float]) -> StepDigest:
    count = len(samples)
    syncs = [sample.sync for sample in samples if sample.sync is not None]
    bubbles = [sample.bubble for sample in samples if sample.bubble is not None]
    return StepDigest(
        seconds=digest(seconds),
        mean_data_wait=math.fsum(sample.data_wait for sample in samples) / count,
        mean_forward=math.fsum(sample.forward for sample in samples) / count,
        mean_backward=math.fsum(sample.backward for sample in samples) / count,
        mean_optimizer=math.fsum(sample.optimizer for sample in samples) / count,
        mean_sync=math.fsum(syncs) / count if len(syncs) == count else None,
        mean_bubble=math.fsum(bubbles) / count if len(bubbles) == count else None,
    )


def _where_ranks_were(directory: Path, world_size: int) -> str:
    """The Python line each rank was at when it was asked, as ``; rank 1 was in net.py:12 forward``."""
    places = []
    for rank in range(world_size):
        stacks = _STACK_TOP.findall(tail(directory / f"rank-{rank}.stderr.log", 32 * 1024))
        if stacks:
            file, line, function = stacks[-1]
            places.append(f"rank {rank} was in {Path(file).name}:{line} {function}")
    return "".join(f"; {place}" for place in places)


def _log_tail(directory: Path, torchrun_log: str, world_size: int) -> str:
    share = _LOG_TAIL_CHARACTERS // (world_size + 1)
    parts = []
    for rank in range(world_size):
        text = tail(directory / f"rank-{rank}.stderr.log", share).strip()
        if text:
            parts.append(f"rank {rank}:\n{text}")
    if torchrun_log.strip():
        parts.append(f"torchrun:\n{torchrun_log[-share:].strip()}")
    return "\n\n".join(parts)


def _read_all(directory: Path, pattern: str, model: type[M], world_size: int) -> list[M]:
    """The ranks' files in rank order; one that cannot be read counts as not written."""
    found = []
    for rank in range(world_size):
        path = directory / pattern.replace("*", str(rank))
        try:
            found.append(model.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return found


def _read_lines(path: Path, model: type[M]) -> list[M]:
    try:
        return [model.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError):
        return []


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
