"""Ranks that wait in different groups, each for the next one: they call, or their devices carry out,
the same collectives in different orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchscale.catalog.backends import runs_on_device
from torchscale.features.watch.hang.collective_log import SCHEDULED, STARTED, CollectiveCall
from torchscale.features.watch.hang.collectives import Stall
from torchscale.features.watch.hang.history import leaves_loop
from torchscale.features.watch.hang.job import Job
from torchscale.features.watch.hang.verdict import collective_label, make_verdict, stuck_collective
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.text import agreeing, ranks_label

_MAX_NAMED = 4
"""Collectives of a circle in one sentence; the evidence has all ranks."""


@dataclass(frozen=True)
class _Wait:
    """A collective, the ranks that are in it, and those that they wait for."""

    stall: Stall
    inside: frozenset[int]
    awaited: frozenset[int]


@dataclass(frozen=True)
class _Side:
    """A part of a circle: ranks that are in a collective, and that others of it wait for."""

    stall: Stall
    ranks: tuple[int, ...]


def explain_circle(job: Job) -> Autopsy | None:
    """Ranks that wait for each other since none calls what the one before it waits in."""
    waits = [
        # Of a rank that is silent in one group the logs may say that it waits in another.
        _Wait(stall, frozenset(stall.waiting), frozenset({*stall.missing, *stall.silent}))
        for stall in job.stalls
    ]
    sides = _shortest_circle(waits)
    if not sides:
        return None
    return _verdict(job, sides, ())


def explain_circle_of_devices(job: Job) -> Autopsy | None:
    """The same where hosts run ahead of their devices: ranks have called all of it, and a device is
    in what was called first, or in what the recorder says that it has begun."""
    stalls = [stall for stall in job.stalls if _is_of_devices(stall)]
    sides = _shortest_circle(_waits_of_devices(stalls))
    if not sides:
        return None
    orders = [
        f"{ranks_label(side.ranks)} called {_label(job, side.stall)} before {_label(job, awaited)}"
        for side, awaited in zip(sides, [sides[-1].stall, *(s.stall for s in sides)], strict=False)
        if all(_is_before(side.stall, awaited, rank) for rank in side.ranks)
    ]
    return _verdict(job, sides, orders)


def _is_of_devices(stall: Stall) -> bool:
    """Whether a collective is carried out by devices, so that its hosts go on after the call."""
    return any(runs_on_device(stall.call(rank).backend) for rank in stall.waiting)


def _waits_of_devices(stalls: Sequence[Stall]) -> list[_Wait]:
    """Which devices are in each collective, and which have it still before them."""
    waiting = [frozenset(stall.waiting) for stall in stalls]
    inside: list[set[int]] = [set() for _ in stalls]
    behind: list[set[int]] = [set(stall.missing) for stall in stalls]
    of_rank: dict[int, list[int]] = {}
    for index, stall in enumerate(stalls):
        for rank in stall.called:
            of_rank.setdefault(rank, []).append(index)
    for rank, mine in of_rank.items():
        calls = _in_order({index: stalls[index].call(rank) for index in mine})
        pending = [index for index in calls if rank in waiting[index]]
        begun = [index for index in pending if calls[index].state == STARTED]
        current = begun or pending[:1]
        for index in calls:
            is_scheduled = bool(begun) and calls[index].state == SCHEDULED
            is_later = any(calls[now].created_ns < calls[index].created_ns for now in current)
            if index in current:
                inside[index].add(rank)
            elif is_scheduled or is_later:
                behind[index].add(rank)
    return [
        _Wait(stall, frozenset(here), frozenset(later))
        for stall, here, later in zip(stalls, inside, behind, strict=True)
    ]


def _in_order(calls: Mapping[int, CollectiveCall]) -> dict[int, CollectiveCall]:
    """The calls in the order in which they were made."""
    return dict(sorted(calls.items(), key=lambda item: item[1].created_ns))


def _is_before(first: Stall, second: Stall, rank: int) -> bool:
    """Whether a rank called the one collective before the other; false where it did not call the
    other."""
    if not second.has_called(rank):
        return False
    return first.call(rank).created_ns < second.call(rank).created_ns


def _shortest_circle(waits: Sequence[_Wait]) -> list[_Side]:
    """The shortest circle of waits; of equal ones the first. Empty for none."""
    followers = _followers(waits)
    shortest: list[int] = []
    for start in range(len(waits)):
        circle = _circle_from(start, followers)
        if circle and (not shortest or len(circle) < len(shortest)):
            shortest = circle
        if len(shortest) == 2:
            break
    return [
        _Side(
            waits[index].stall,
            tuple(sorted(waits[index].inside & waits[shortest[position - 1]].awaited)),
        )
        for position, index in enumerate(shortest)
    ]


def _followers(waits: Sequence[_Wait]) -> list[list[int]]:
    """For each wait the other ones that a rank is in which it waits for."""
    of_rank: dict[int, list[int]] = {}
    for index, wait in enumerate(waits):
        for rank in wait.inside:
            of_rank.setdefault(rank, []).append(index)
    return [
        list(
            dict.fromkeys(
                follower
                for rank in sorted(wait.awaited)
                for follower in of_rank.get(rank, ())
                if follower != index
            )
        )
        for index, wait in enumerate(waits)
    ]


def _circle_from(start: int, followers: Sequence[Sequence[int]]) -> list[int]:
    """The shortest way from ``start`` back to it; empty for none."""
    came_from: dict[int, int] = {}
    ahead = [start]
    for index in ahead:  # grows meanwhile
        for follower in followers[index]:
            if follower == start:
                way = [index]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if follower not in came_from:
                came_from[follower] = index
                ahead.append(follower)
    return []


def _verdict(job: Job, sides: Sequence[_Side], orders: Sequence[str]) -> Autopsy:
    """Names the sides that do not do what they did in earlier rounds, else all. The collective is
    that of another side, which the named ones should have called."""
    first = 0
    if len(sides) > 2:
        first = min(range(len(sides)), key=lambda index: sides[index].ranks)
    sides = [*sides[first:], *sides[:first]]
    leaving = [side for side in sides if _leaves_loop(job, side)]
    everyone = tuple(sorted({rank for side in sides for rank in side.ranks}))
    if 0 < len(leaving) < len(sides):
        odd = tuple(sorted({rank for side in leaving for rank in side.ranks}))
        stall = next(side.stall for side in sides if side not in leaving)
        evidence = [f"earlier rounds called at this point what {ranks_label(odd)} did not"]
        confidence = Confidence.MEDIUM
    else:
        odd, stall, confidence = everyone, sides[0].stall, Confidence.LOW
        evidence = ["nothing says which of them is wrong"]
    if len(sides) > 2:
        evidence.insert(0, _told_in_order(sides))
    places = [
        f"{ranks_label(side.ranks)} in {_label(job, side.stall)}" for side in sides[:_MAX_NAMED]
    ]
    if len(sides) > _MAX_NAMED:
        places.append(f"and {len(sides) - _MAX_NAMED} more")
    circle = ""
    if len(sides) > 2:
        circle = " in a circle"
    summary = (
        f"{ranks_label(everyone)} wait for each other{circle}: {', '.join(places)}; they call "
        "these collectives in different orders"
    )
    return make_verdict(
        job,
        HangCause.ORDER,
        odd,
        confidence,
        summary,
        collective=stuck_collective(job, stall, odd),
        evidence=[*evidence, *orders],
    )


def _leaves_loop(job: Job, side: _Side) -> bool:
    """Whether all ranks of a side call something else than in earlier rounds."""
    return all(leaves_loop(job.ranks[rank].log, side.stall.call(rank)) for rank in side.ranks)


def _told_in_order(sides: Sequence[_Side]) -> str:
    """``rank 0 waits for rank 1, rank 1 for rank 3, rank 3 for rank 0``."""
    labels = [ranks_label(side.ranks) for side in sides]
    first, *others = [
        (label, labels[(index + 1) % len(labels)]) for index, label in enumerate(labels)
    ]
    waits = agreeing(sides[0].ranks, "waits", "wait")
    return ", ".join([f"{first[0]} {waits} for {first[1]}", *(f"{a} for {b}" for a, b in others)])


def _label(job: Job, stall: Stall) -> str:
    return collective_label(stuck_collective(job, stall, ()))
