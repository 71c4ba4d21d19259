"""Which operations of which ranks belong together: collectives of a group, and sends with their
receives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.trace.pairing import Paired
from torchscale.analysis.trace.replay.graph import ReplayError
from torchscale.analysis.trace.stages import StageLayout, partner_column
from torchscale.analysis.trace.windows import RankWindow
from torchscale.schema.profiles.span import SEND_RECV
from torchscale.util.units import format_percent

_TIED_SHARE = 0.9
"""Share of the time of communication: with more of it untied, a rank's waits would be taken for its
own time."""


@dataclass(frozen=True)
class Tie:
    """An operation that several ranks take part in.

    Attributes:
        op: ``all_reduce`` …
        group: Process group, for operations that are alike in every step.
        payload_bytes: -1 where it is not known.
        members: (column of the rank, place among its collectives).
    """

    op: str
    group: str
    payload_bytes: int
    members: tuple[tuple[int, int], ...]


def find_ties(ranks: Sequence[RankWindow], paired: Paired, layout: StageLayout) -> list[Tie]:
    """Operations that begin in the windows of all ranks that take part.

    Args:
        ranks: All ranks.
        paired: Collectives in the windows, with the places of each among its rank's.
        layout: The stages, by which sends and receives within process groups find their partners.

    Raises:
        ReplayError: most communication cannot be tied.
    """
    ties = [
        Tie(
            paired.op[row],
            paired.group[row],
            int(paired.payload_bytes[row]),
            tuple(
                (int(column), int(paired.index[row, column]))
                for column in np.flatnonzero(paired.takes_part[row])
            ),
        )
        for row in range(len(paired))
    ]
    tied = {member for tie in ties for member in tie.members}
    ties += [tie for tie in _messages(ranks, layout) if not tied.intersection(tie.members)]
    _check(ranks, ties)
    return ties


def _messages(ranks: Sequence[RankWindow], layout: StageLayout) -> Iterator[Tie]:
    """Sends and receives that name their partner by its place in a process group: the n-th send of
    a step from one rank to another is the n-th receive there from it."""
    queues: dict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for column, rank in enumerate(ranks):
        collectives = rank.trace.collectives
        if not collectives.peers_within_group:
            continue
        places = np.flatnonzero(
            collectives.point_to_point & (collectives.direction != 0) & (collectives.peer >= 0)
        )
        steps = np.searchsorted(rank.steps.start, collectives.start[places], side="right") - 1
        for place, step in zip(places, steps, strict=True):
            if step < 0 or collectives.start[place] >= rank.end:
                continue
            partner = partner_column(int(collectives.peer[place]), column, layout, len(ranks))
            if partner is None:
                continue
            sends = collectives.direction[place] > 0
            key = (column, partner, int(step)) if sends else (partner, column, int(step))
            queues[key][0 if sends else 1].append(int(place))
    for (source, target, _), (sends, receives) in queues.items():
        if len(sends) != len(receives):
            continue
        for send, receive in zip(sends, receives, strict=True):
            size = int(ranks[target].trace.collectives.payload_bytes[receive])
            yield Tie(SEND_RECV, f"{source} to {target}", size, ((source, send), (target, receive)))


def _check(ranks: Sequence[RankWindow], ties: Sequence[Tie]) -> None:
    if len(ranks) < 2:
        return
    tied = [np.zeros(len(rank.trace.collectives), dtype=bool) for rank in ranks]
    for tie in ties:
        for column, place in tie.members:
            tied[column][place] = True
    total = together = 0
    for rank, which in zip(ranks, tied, strict=True):
        inside = _inside(rank)
        lengths = rank.trace.collectives.end - rank.trace.collectives.start
        total += int(lengths[inside].sum())
        together += int(lengths[inside & which].sum())
    if together < _TIED_SHARE * total:
        raise ReplayError(
            f"only {format_percent(together / total, 0)} of the time of communication could be "
            "tied to the other ranks that took part"
        )


def _inside(rank: RankWindow) -> NDArray[np.bool_]:
    start = rank.trace.collectives.start
    return np.asarray((start >= rank.start) & (start < rank.end))
