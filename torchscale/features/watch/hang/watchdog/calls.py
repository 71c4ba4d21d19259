"""What NCCL's watchdogs say of a rank, in the form of what a flight recorder holds: far less of it,
and of some groups alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchscale.catalog.backends import NCCL, is_nccl
from torchscale.features.watch.hang.collective_log import (
    DEFAULT_GROUP_DESCRIPTION,
    SCHEDULED,
    STARTED,
    CollectiveCall,
    CollectiveLog,
    ProcessGroup,
)
from torchscale.features.watch.hang.watchdog.groups import ToldGroup
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)

_OPERATIONS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
}
"""``c10d::OpType`` as the watchdog writes it → the name that the flight recorder gives; others
differ in case alone."""
_P2P = frozenset({"SEND", "RECV", "RECVANYSOURCE"})


def collectives_of(
    rank: int, watchdog: RankWatchdog, told_groups: Mapping[tuple[str, int], ToldGroup]
) -> CollectiveLog | None:
    """The collectives that a rank's watchdogs tell of; ``None`` where they tell of none.

    Args:
        rank: Global rank.
        watchdog: What they say.
        told_groups: The groups that are known from places in them, by name and rank.
    """
    groups: dict[str, ProcessGroup] = {}
    calls: list[CollectiveCall] = []
    for told, status in watchdog.groups.items():
        if status.failed is None and status.enqueued is None:
            continue
        name = told
        if told in UNNAMED:
            name = f"{told} of rank {rank}"
        groups[name] = _group(name, status, told_groups.get((name, rank)))
        calls += _calls(name, status)
    if not groups:
        return None
    return CollectiveLog(tuple(calls), groups, is_partial=True)


def fitted(rank: int, log: CollectiveLog, dumped: Sequence[CollectiveLog]) -> CollectiveLog:
    """What a rank's watchdog says, with the groups and the types that the recorders of other ranks
    know, so that both can be compared."""
    groups = dict(log.groups)
    recorded: dict[tuple[str, int], CollectiveCall] = {}
    for other in dumped:
        for name, group in other.groups.items():
            if name in groups and rank in group.ranks:
                groups[name] = group
        for call in other.calls:
            if call.group not in groups or not _may_have(other, call.group, rank):
                continue
            if is_nccl(call.backend) and not call.is_p2p:
                recorded[call.group, call.sequence] = call
    backends = {name: call.backend for (name, _), call in recorded.items()}
    calls = [
        _like(replace(call, backend=backends.get(call.group, call.backend)), recorded)
        for call in log.calls
    ]
    return replace(log, calls=tuple(calls), groups=groups)


def _may_have(log: CollectiveLog, name: str, rank: int) -> bool:
    """Whether a rank may be in the group that a recorder has under a name."""
    members = log.groups.get(name, ProcessGroup()).ranks
    return not members or rank in members


def _group(name: str, status: GroupStatus, group: ToldGroup | None) -> ProcessGroup:
    """A group with the ranks that follow from the places of some in it. None of the default group,
    which has all."""
    if name == DEFAULT_GROUP:
        return ProcessGroup(DEFAULT_GROUP_DESCRIPTION, is_inferred=status.is_assumed)
    if group is None:
        return ProcessGroup(status.description, is_inferred=True)
    return ProcessGroup(status.description, group.members, is_inferred=not group.is_sure)


def _calls(group: str, status: GroupStatus) -> list[CollectiveCall]:
    """The calls that are told: the one that failed, else the first that has not completed; and the
    last. What they were is not known but of the one that failed."""
    failed, last = status.failed, status.enqueued or 0
    calls: dict[int, CollectiveCall] = {}
    if failed is not None:
        calls[failed.number] = _failed_call(group, failed, status.started)
        last = max(last, failed.number)
    elif status.completed is not None and status.completed < last:
        first = max(status.completed, 0) + 1
        calls[first] = _unknown_call(group, first, is_done=False)
    if last > 0 and last not in calls:
        calls[last] = _unknown_call(group, last, is_done=not calls)
    return list(calls.values())


def _failed_call(group: str, failed: FailedWork, started: int) -> CollectiveCall:
    sizes: tuple[tuple[int, ...], ...] = ()
    if failed.elements is not None:
        sizes = ((failed.elements,),)
    state = ""
    if started > 0:
        state = STARTED if started >= failed.number else SCHEDULED
    return CollectiveCall(
        group=group,
        sequence=failed.number,
        operation=operation_of(failed),
        is_p2p=failed.operation in _P2P,
        is_done=False,
        created_ns=int((failed.called or 0.0) * 1e9),
        input_sizes=sizes,
        backend=NCCL,
        state=state,
    )


def _unknown_call(group: str, number: int, *, is_done: bool) -> CollectiveCall:
    return CollectiveCall(
        group, number, "", is_p2p=False, is_done=is_done, created_ns=0, backend=NCCL
    )


def operation_of(failed: FailedWork) -> str:
    """The name of what failed, as recorders have it."""
    return _OPERATIONS.get(failed.operation, failed.operation.lower())


def _like(
    told: CollectiveCall, recorded: Mapping[tuple[str, int], CollectiveCall]
) -> CollectiveCall:
    """A call with the name and the types of the one that a recorder holds under its number, where
    it may be the same."""
    other = recorded.get((told.group, told.sequence))
    if other is None or not _may_be_same(told, other):
        return told
    return replace(
        told,
        operation=other.operation,
        input_sizes=other.input_sizes,
        input_dtypes=other.input_dtypes,
    )


def _may_be_same(told: CollectiveCall, recorded: CollectiveCall) -> bool:
    """Whether what a watchdog names in its own words may be what a recorder holds."""
    names = [call.operation.replace("_", "") for call in (told, recorded)]
    if not names[0] or names[0] not in names[1]:
        return False
    elements = [sum(map(math.prod, call.input_sizes)) for call in (told, recorded)]
    return not told.input_sizes or elements[0] == elements[1]
