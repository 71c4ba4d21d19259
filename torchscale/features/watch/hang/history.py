"""What was due where ranks part: what most of them called, and what earlier rounds of their loop
called at this point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from torchscale.features.watch.hang.collective_log import CollectiveCall, CollectiveLog
from torchscale.features.watch.hang.collectives import Stall
from torchscale.features.watch.hang.signatures import Signature, call_signature

_CONTEXT = 3
"""Collectives before a position that must be equal for two positions of a loop to count as the
same."""
_MIN_REPETITIONS = 2
"""Earlier rounds that say what comes next: one could have been another phase of the program."""

T = TypeVar("T")


def odd_ranks(stall: Stall) -> tuple[tuple[int, ...], bool]:
    """The ranks whose call differs from what was due, and whether a clear majority says so. All of
    them where nothing says what was due."""
    counts = Counter(stall.signatures.values())
    (common, most), *others = counts.most_common()
    if most > sum(count for _, count in others):
        return tuple(
            sorted(rank for rank, value in stall.signatures.items() if value != common)
        ), True
    due = due_signature(stall)
    if due is not None and 0 < counts[due] < len(stall.signatures):
        return tuple(
            sorted(rank for rank, value in stall.signatures.items() if value != due)
        ), False
    return tuple(sorted(stall.signatures)), False


def due_signature(stall: Stall) -> Signature | None:
    """What earlier rounds of the same loop called at this point, if that is always the same:
    training repeats its collectives. Only the history before the mismatch is read, which all ranks
    share."""
    rank = min(stall.signatures)
    numbers = sorted(number for number in stall.log.calls[rank] if number < stall.number)
    history = [
        signature
        for number in numbers
        if (signature := stall.log.signature(rank, number)) is not None
    ]
    return _next_in_loop(history)


def leaves_loop(log: CollectiveLog | None, call: CollectiveCall) -> bool:
    """Whether a rank calls something else than in all earlier rounds of its loop, over all of its
    groups; false where its history does not say."""
    if log is None:
        return False
    calls = [earlier for earlier in log.calls if not earlier.is_p2p]
    if call not in calls:
        return False
    history = [(earlier.group, call_signature(earlier)) for earlier in calls[: calls.index(call)]]
    due = _next_in_loop(history)
    return due is not None and due != (call.group, call_signature(call))


def swapped(stall: Stall) -> bool:
    """Whether ranks called the same collectives from this number on, in another order."""
    first, *others = sorted(stall.signatures)
    reference = _signatures_from(stall, first)
    for rank in others:
        mine = _signatures_from(stall, rank)
        length = min(len(mine), len(reference))
        same = any(Counter(mine[:end]) == Counter(reference[:end]) for end in range(2, length + 1))
        if mine[0] != reference[0] and not same:
            return False
    return True


def _next_in_loop(history: Sequence[T]) -> T | None:
    """What always followed the last ``_CONTEXT`` items of ``history`` earlier in it; ``None`` where
    that differs, or happened fewer than ``_MIN_REPETITIONS`` times."""
    if len(history) <= _CONTEXT:
        return None
    context = history[-_CONTEXT:]
    followers = [
        history[position + _CONTEXT]
        for position in range(len(history) - _CONTEXT)
        if history[position : position + _CONTEXT] == context
    ]
    same = all(follower == followers[0] for follower in followers)
    if len(followers) < _MIN_REPETITIONS or not same:
        return None
    return followers[0]


def _signatures_from(stall: Stall, rank: int) -> list[Signature]:
    """What ``rank`` called from the number of ``stall`` on."""
    numbers = sorted(number for number in stall.log.calls[rank] if number >= stall.number)
    return [
        signature
        for number in numbers
        if (signature := stall.log.signature(rank, number)) is not None
    ]
