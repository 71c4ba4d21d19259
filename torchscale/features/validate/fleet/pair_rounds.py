"""Pairs of nodes in rounds in which no node has two partners, and the times that they gave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.schema.node.fleet import PairTimes


def rounds(nodes: int) -> tuple[tuple[Pair, ...], ...]:
    """All pairs of ``nodes`` in the fewest rounds in which no node has two partners (the circle
    method of tournaments): n − 1 rounds for an even number, n with one idle node each for an odd
    one."""
    if nodes < 2:
        return ()
    size = nodes + nodes % 2
    circle = list(range(size))
    schedule = []
    for _ in range(size - 1):
        pairs = ((circle[k], circle[size - 1 - k]) for k in range(size // 2))
        schedule.append(tuple((min(pair), max(pair)) for pair in pairs if max(pair) < nodes))
        circle.insert(1, circle.pop())
    return tuple(schedule)


def disjoint_rounds(pairs: Collection[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """``pairs`` in rounds in which no node has two partners, each pair in the first round with room
    for it."""
    schedule: list[list[Pair]] = []
    for pair in sorted(pairs):
        for made in schedule:
            if not any(set(pair) & set(other) for other in made):
                made.append(pair)
                break
        else:
            schedule.append([pair])
    return tuple(tuple(made) for made in schedule)


@dataclass
class MeasuredPairs:
    """Times of pairs of places: all that were measured so far, which pairs were measured more than
    once, and why a pair has none."""

    seconds: dict[Pair, tuple[float, ...]] = field(default_factory=dict)
    repeated: set[Pair] = field(default_factory=set)
    errors: dict[Pair, str] = field(default_factory=dict)

    def add(
        self, pairs: Collection[Pair], repeats: int, sent: Mapping[int, PairTimes | None]
    ) -> None:
        """What the nodes sent (place → times) of ``pairs``; a pair that is not complete has
        failed."""
        measured = {
            (place, entry.partner): entry
            for place, times in sent.items()
            if times is not None
            for entry in times.partners
        }
        for pair in pairs:
            entry = measured.get(pair)
            if entry is not None and len(entry.seconds) == repeats:
                if pair in self.seconds:
                    self.repeated.add(pair)
                self.seconds[pair] = (*self.seconds.get(pair, ()), *entry.seconds)
            else:
                self.seconds.pop(pair, None)
                self.errors[pair] = "the node sent no times"
                if entry is not None and entry.error:
                    self.errors[pair] = entry.error


def partner_of(place: int, pairs: Sequence[Pair]) -> int | None:
    """The other node of the pair that ``place`` is in."""
    return next((sum(pair) - place for pair in pairs if place in pair), None)
