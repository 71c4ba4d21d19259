"""Numbers of collectives, and whether they mean the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torchscale.features.watch.hang.collective_log import CollectiveCall, CollectiveLog
from torchscale.features.watch.hang.signatures import signature_of

Numbered = dict[int, tuple[CollectiveCall, ...]]
"""Number → calls: several where they were coalesced."""


def compared(
    logs: Mapping[int, CollectiveLog], calls: Mapping[int, Numbered], backend: str
) -> Mapping[int, Numbered] | None:
    """The calls of a group by a backend, where ranks can be compared by them."""
    if any(backend in logs[rank].untold for rank in calls):
        calls = _ended_by_numbers(calls)
    complete = all(backend not in logs[rank].truncated for rank in calls)
    return _comparable(calls, complete=complete)


def _ended_by_numbers(calls: Mapping[int, Numbered]) -> dict[int, Numbered]:
    """Calls of a backend that does not say when they complete: none has before every rank called
    it."""
    called_by_all = min((max(numbered, default=0) for numbered in calls.values()), default=0)
    return {
        rank: {
            number: tuple(replace(call, is_done=number <= called_by_all) for call in of_number)
            for number, of_number in numbered.items()
        }
        for rank, numbered in calls.items()
    }


def _comparable(calls: Mapping[int, Numbered], *, complete: bool) -> Mapping[int, Numbered] | None:
    """The collectives under numbers that mean the same on every rank; ``None`` where that cannot be
    had.

    gloo counts sends and receives of a group with its collectives and does not record them, so that
    ranks which send unequally often number the same collective differently. Where a number is
    missing, or ranks differ from the first number on that they all have, collectives are counted
    from the start instead, if the logs reach back to it.
    """
    gaps = any(_has_gaps(numbered, complete=complete) for numbered in calls.values() if numbered)
    gloo = any(
        call.backend == "gloo"
        for numbered in calls.values()
        for group in numbered.values()
        for call in group
    )
    if not gloo or not (gaps or (not complete and _differ_at_first(calls))):
        return calls
    if not complete:
        return None
    return {
        rank: {count: numbered[number] for count, number in enumerate(sorted(numbered), 1)}
        for rank, numbered in calls.items()
    }


def _has_gaps(numbered: Numbered, *, complete: bool) -> bool:
    """Whether numbers are missing, of a log that begins with the first call if it is
    ``complete``."""
    before = 0
    if not complete:
        before = min(numbered) - 1
    return len(numbered) < max(numbered) - before


def _differ_at_first(calls: Mapping[int, Numbered]) -> bool:
    """Whether ranks called differently under the first number that they all have."""
    common = set.intersection(*map(set, calls.values()))
    if not common:
        return False
    return len({signature_of(numbered[min(common)]) for numbered in calls.values()}) > 1
