"""A cause in words: the sentence, the collective, and where every rank is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.features.watch.hang.collective_log import DEFAULT_GROUP_DESCRIPTION, CollectiveCall
from torchscale.features.watch.hang.collectives import GroupLog, Stall
from torchscale.features.watch.hang.job import Job, wait_of
from torchscale.features.watch.hang.signatures import (
    COALESCED,
    payload_bytes,
    payload_dtype,
    payload_elements,
    payload_of,
)
from torchscale.features.watch.hang.stacks import place, purpose
from torchscale.schema.launch.hang import (
    Autopsy,
    HangCause,
    RankCondition,
    RankPosition,
    StuckCollective,
)
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.optional import optional, sole
from torchscale.util.text import ranks_label
from torchscale.util.units import format_bytes

_SOME = "collective"
"""One whose operation is not known, or differs between ranks."""


def collective_label(collective: StuckCollective) -> str:
    """``all_reduce #4312 (gradients, 25.0 MiB)``; with the group and its ranks unless it is the
    default group."""
    name = collective.operation
    if collective.sequence is not None:
        name += f" #{collective.sequence}"
    details = []
    if collective.purpose:
        details.append(collective.purpose)
    if collective.payload_bytes is not None:
        details.append(format_bytes(collective.payload_bytes))
    elif collective.elements is not None:
        details.append(_elements_label(collective.elements))
    if collective.group:
        of_ranks = ""
        if collective.group_ranks:
            of_ranks = f" of {ranks_label(collective.group_ranks)}"
        details.append(f"group {collective.group}{of_ranks}")
    if not details:
        return name
    return f"{name} ({', '.join(details)})"


def make_verdict(
    job: Job,
    cause: HangCause,
    ranks: Sequence[int],
    confidence: Confidence,
    summary: str,
    *,
    collective: StuckCollective | None = None,
    evidence: Sequence[str] = (),
) -> Autopsy:
    """The cause with what is known of every rank; ``ranks`` are the ones to look at. What a watchdog
    says is less than what a recorder holds: a rank that is still within a call has enqueued
    nothing, and what it calls coalesced may be sends that others take no part in."""
    if any(evidence.is_from_log for evidence in job.ranks.values()):
        if confidence is Confidence.HIGH:
            confidence = Confidence.MEDIUM
        if collective is not None and collective.operation == COALESCED:
            confidence = Confidence.LOW
    inferred = _inferred(job, collective)
    if inferred is not None:
        confidence = Confidence.LOW
        evidence = [*evidence, *inferred]
    positions = tuple(_position(job, rank) for rank in job.ranks)
    return Autopsy(
        cause=cause,
        ranks=tuple(sorted(ranks)),
        collective=collective,
        confidence=confidence,
        summary=summary,
        evidence=(*evidence, *_states(job, positions), *job.notes),
        positions=positions,
    )


def _inferred(job: Job, collective: StuckCollective | None) -> list[str] | None:
    """What is said where the ranks of a collective may be of several groups; ``None`` where they are
    of one."""
    for stall in job.stalls:
        log = stall.log
        is_it = collective is not None and (collective.sequence, collective.group) == (
            stall.number,
            _group_name(log),
        )
        if is_it and log.is_inferred:
            if len(stall.called) == 1 or not log.may_be_several:
                return []
            return [
                f"nothing proves that {ranks_label(stall.called)} are of one group {_group_name(log)}"
            ]
    return None


def _states(job: Job, positions: Sequence[RankPosition]) -> list[str]:
    """A line for all ranks that are in the same place."""
    lines: dict[str, list[int]] = {}
    for position in positions:
        text = _state(job, position)
        problem = job.ranks[position.rank].problem
        if problem:
            text += f" ({problem})"
        lines.setdefault(text, []).append(position.rank)
    return [f"{ranks_label(ranks)}: {text}" for text, ranks in lines.items()]


def _state(job: Job, position: RankPosition) -> str:
    if position.condition is RankCondition.GONE:
        return "process has ended"
    if position.condition is not RankCondition.RUNNING:
        return "process is stopped"
    inside = " and ".join(
        f"{name}{_device_state(stall, position.rank)}"
        for name, stall in zip(
            _names(job, position.rank), job.waits_in[position.rank], strict=False
        )
    )
    inside = inside or position.collective
    if inside and position.place:
        return f"in {inside}, at {position.place}"
    if inside:
        return f"in {inside}"
    text = "no stack"
    if position.place:
        text = f"at {position.place}"
    last = _last_call(job, position.rank)
    if last:
        text += f"; its last collective was {last}"
    return text


def _position(job: Job, rank: int) -> RankPosition:
    evidence = job.ranks[rank]
    return RankPosition(
        rank=rank,
        condition=evidence.condition,
        place=place(evidence.frames),
        collective=" and ".join(_names(job, rank)) or wait_of(evidence.frames),
    )


def _names(job: Job, rank: int) -> list[str]:
    """The collectives that a rank waits in, at most two."""
    return [
        f"{stall.call(rank).operation or _SOME} #{stall.number}{of_group(stall)}"
        for stall in job.waits_in[rank][:2]
    ]


def _device_state(stall: Stall, rank: int) -> str:
    """`` (scheduled)``, where the states of a collective's ranks differ."""
    if len(stall.states) < 2:
        return ""
    return f" ({stall.call(rank).state})"


def _last_call(job: Job, rank: int) -> str:
    """The latest collective that a rank called, as ``all_reduce #56``."""
    log = job.ranks[rank].log
    if log is None:
        return ""
    for call in reversed(log.calls):
        if not call.is_p2p:
            return f"{call.operation or _SOME} #{call.sequence}"
    return ""


def stuck_collective(job: Job, stall: Stall, odd: Sequence[int]) -> StuckCollective:
    """The collective of ``stall`` as the ranks called it that are not ``odd``."""
    known = sorted(stall.signatures) or list(stall.called)
    callers = [rank for rank in known if rank not in odd] or known
    calls = [stall.call(rank) for rank in callers]
    operation = sole({call.operation for call in calls}) or _SOME
    waiting = next((rank for rank in callers if rank in stall.waiting), callers[0])
    return StuckCollective(
        operation=operation,
        sequence=stall.number,
        group=_group_name(stall.log),
        group_ranks=_group_ranks(stall.log),
        payload_bytes=sole({payload_of(stall.calls(rank)) for rank in callers}) or None,
        elements=sole({payload_elements(call) for call in calls}),
        dtype=sole({payload_dtype(call) for call in calls}),
        purpose=purpose(operation, job.ranks[waiting].frames),
    )


def _elements_label(count: int) -> str:
    if count == 1:
        return "1 element"
    return f"{count:,} elements"


def _group_ranks(log: GroupLog) -> tuple[int, ...]:
    """The ranks of a group; none where only logs tell of one that has not all ranks."""
    if log.is_partial and log.description != DEFAULT_GROUP_DESCRIPTION:
        return ()
    return log.members


def _group_name(log: GroupLog) -> str:
    """torch's description, as ``mesh_dp``, else its number; empty for the default group."""
    if log.description == DEFAULT_GROUP_DESCRIPTION:
        return ""
    if log.description in ("undefined", ""):
        return log.name
    return log.description


def of_group(stall: Stall) -> str:
    """The group behind a collective's name; empty for the default group."""
    name = _group_name(stall.log)
    if not name:
        return ""
    return f" of group {name}"


def call_arguments(call: CollectiveCall) -> str:
    """``all_reduce of 4.00 MiB float32``; with its elements where a rank noted them."""
    if call.size is not None and call.input_sizes:
        elements = sum(math.prod(shape) for shape in call.input_sizes)
        if not elements:
            return call.operation
        bytes_text = " ".join((format_bytes(call.size), *call.input_dtypes))
        return f"{call.operation} of {_elements_label(elements)} ({bytes_text})"
    size = optional(format_bytes, payload_bytes(call))
    if size is None:
        size = optional(_elements_label, payload_elements(call))
    details = " ".join(filter(None, (size, payload_dtype(call))))
    if not details:
        return call.operation
    return f"{call.operation} of {details}"
