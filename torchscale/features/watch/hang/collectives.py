"""Where the collectives of a job stand: for each process group the first that does not complete,
and who is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torchscale.features.watch.hang.collective_log import (
    DEFAULT_GROUP_DESCRIPTION,
    CollectiveCall,
    CollectiveLog,
)
from torchscale.features.watch.hang.numbering import Numbered, compared
from torchscale.features.watch.hang.signatures import COALESCED, Signature, signature_of
from torchscale.util.optional import optional


@dataclass(frozen=True)
class GroupLog:
    """The collectives of one backend of a process group: each backend numbers its own.

    Attributes:
        name: Name of the group.
        description: torch's.
        members: Global ranks.
        calls: Global rank → number → calls (several where they were coalesced). Only ranks with a
            recorder.
        is_partial: Whether all that is known of it is from logs, which tell neither all members of
            a group nor what each of them called.
        is_inferred: Whether nothing proves that it is the group of its ranks.
    """

    name: str
    description: str
    members: tuple[int, ...]
    calls: Mapping[int, Mapping[int, tuple[CollectiveCall, ...]]]
    is_partial: bool
    is_inferred: bool

    @property
    def may_be_several(self) -> bool:
        """Whether its ranks may be of several groups."""
        return self.is_inferred and self.description != DEFAULT_GROUP_DESCRIPTION

    def last(self, rank: int) -> int:
        """Number of the latest collective that ``rank`` called; 0 for none."""
        return max(self.calls.get(rank, {}), default=0)

    def pending(self, rank: int) -> int | None:
        """Number of the first collective that ``rank`` is still in."""
        waiting = (
            number
            for number, calls in self.calls.get(rank, {}).items()
            if not all(call.is_done for call in calls)
        )
        return min(waiting, default=None)

    def signature(self, rank: int, number: int) -> Signature | None:
        """What ``rank`` called under ``number``; ``None`` where that is not known (any more)."""
        return optional(signature_of, self.calls.get(rank, {}).get(number))


@dataclass(frozen=True)
class Stall:
    """A collective that does not complete.

    Attributes:
        log: Log of its group.
        number: Number of the collective in the group.
        waiting: Ranks that are in it.
        missing: Ranks with a recorder that have not called it.
        silent: Members without a recorder.
        signatures: What each rank called under that number.
        passed: An earlier collective that ranks called with different arguments, and that completed
            on all of them; ``None`` for none.
    """

    log: GroupLog
    number: int
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    silent: tuple[int, ...]
    signatures: Mapping[int, Signature]
    passed: Stall | None = None

    @cached_property
    def states(self) -> frozenset[str]:
        """What the recorders of its ranks say of their devices."""
        return frozenset(self.call(rank).state for rank in self.called)

    @cached_property
    def called(self) -> tuple[int, ...]:
        """Ranks that have called it, and may have left it."""
        return tuple(rank for rank in sorted(self.log.calls) if self.has_called(rank))

    def has_called(self, rank: int) -> bool:
        """Whether ``rank`` has called it, and may have left it."""
        return self.number in self.log.calls.get(rank, {})

    @property
    def is_mismatch(self) -> bool:
        """Whether ranks of one group called different things."""
        return not self.log.may_be_several and len(set(self.signatures.values())) > 1

    @property
    def is_passed(self) -> bool:
        """Whether ranks called one operation with different arguments, and all have left it."""
        operations = {
            tuple(operation for operation, _, _ in signature)
            for signature in self.signatures.values()
        }
        return self.is_mismatch and not self.waiting and len(operations) == 1

    def calls(self, rank: int) -> tuple[CollectiveCall, ...]:
        """What ``rank`` called: several where they were coalesced."""
        return self.log.calls[rank][self.number]

    def call(self, rank: int) -> CollectiveCall:
        """What ``rank`` called; of coalesced ones the entry that ends them, where there is one."""
        first, *others = self.calls(rank)
        if others and others[-1].operation.endswith(COALESCED):
            return others[-1]
        return first

    @property
    def created_ns(self) -> int:
        """When the first rank called it."""
        return min(self.call(rank).created_ns for rank in self.called)


def group_logs(logs: Mapping[int, CollectiveLog], world: Sequence[int]) -> list[GroupLog]:
    """The process groups of a job.

    Args:
        logs: Logs of the ranks that have one.
        world: Every rank.
    """
    keys: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    descriptions: dict[str, str] = {}
    for rank, log in logs.items():
        for name, group in log.groups.items():
            keys.setdefault((name, group.ranks), []).append(rank)
            descriptions.setdefault(name, group.description)
    by_group = {rank: _by_group(log) for rank, log in logs.items()}
    backends: dict[str, set[str]] = {}
    for name, backend in {key for of_rank in by_group.values() for key in of_rank}:
        backends.setdefault(name, set()).add(backend)
    result = []
    for (name, ranks), users in sorted(keys.items()):
        for backend in sorted(backends.get(name, ())):
            known = users if ranks else list(by_group)
            calls = {rank: by_group[rank].get((name, backend), {}) for rank in known}
            callers = tuple(sorted(rank for rank in calls if calls[rank]))
            members = ranks or callers
            if not ranks and descriptions[name] == DEFAULT_GROUP_DESCRIPTION:
                members = tuple(world)
            telling = [rank for rank in members if _tells(logs, rank, name)]
            comparable = compared(logs, {rank: calls.get(rank, {}) for rank in telling}, backend)
            if callers and comparable is not None:
                is_partial = all(logs[rank].is_partial for rank in comparable)
                is_inferred = all(logs[rank].groups[name].is_inferred for rank in users)
                result.append(
                    GroupLog(name, descriptions[name], members, comparable, is_partial, is_inferred)
                )
    return result


def _tells(logs: Mapping[int, CollectiveLog], rank: int, group: str) -> bool:
    """Whether there is a log of a rank, and it tells of a group."""
    return rank in logs and (not logs[rank].is_partial or group in logs[rank].groups)


def find_stalls(groups: Sequence[GroupLog]) -> list[Stall]:
    """The first collective of each group that does not complete, or the first before it that ranks
    called differently; oldest first. Groups whose collectives all complete have none."""
    stalls = []
    for log in groups:
        pending = [number for rank in log.calls if (number := log.pending(rank)) is not None]
        if pending:
            first = _stall(log, min(pending))
            different = _first_difference(log, first.number)
            if different is not None:
                first = _at_difference(first, _stall(log, different))
            stalls.append(first)
    return sorted(stalls, key=lambda stall: stall.created_ns)


def first_mismatch(groups: Sequence[GroupLog]) -> Stall | None:
    """The first collective that ranks called differently, complete or not, in jobs whose ranks have
    failed."""
    found = []
    for log in groups:
        number = _first_difference(log, max((log.last(rank) for rank in log.calls), default=0))
        if number is not None:
            found.append(_stall(log, number))
    return min(found, key=lambda stall: stall.created_ns, default=None)


def _stall(log: GroupLog, number: int) -> Stall:
    signatures = {
        rank: signature
        for rank in log.calls
        if (signature := log.signature(rank, number)) is not None
    }
    waiting = tuple(
        rank
        for rank in sorted(log.calls)
        if not all(call.is_done for call in log.calls[rank].get(number, ()))
    )
    missing = tuple(rank for rank in sorted(log.calls) if log.last(rank) < number)
    silent = tuple(rank for rank in log.members if rank not in log.calls)
    return Stall(log, number, waiting, missing, silent, signatures)


def _at_difference(first: Stall, different: Stall) -> Stall:
    """The collective to explain, of the first that does not complete and the first that ranks called
    differently: what all have left is not why a rank does not come to the next one."""
    if different.is_passed and first.missing:
        return replace(first, passed=different)
    return different


def _first_difference(log: GroupLog, last: int) -> int | None:
    """The lowest number up to ``last`` that ranks called differently; ``None`` where they may be of
    several groups."""
    if log.may_be_several:
        return None
    numbers = sorted({number for calls in log.calls.values() for number in calls if number <= last})
    for number in numbers:
        signatures = {log.signature(rank, number) for rank in log.calls} - {None}
        if len(signatures) > 1:
            return number
    return None


def _by_group(log: CollectiveLog) -> dict[tuple[str, str], Numbered]:
    """Name of a group and backend → number → collectives; coalesced ones share their number."""
    found: dict[tuple[str, str], dict[int, list[CollectiveCall]]] = {}
    for call in log.calls:
        if not call.is_p2p:
            numbered = found.setdefault((call.group, call.backend), {})
            numbered.setdefault(call.sequence, []).append(call)
    return {
        key: {number: tuple(calls) for number, calls in numbered.items()}
        for key, numbered in found.items()
    }
