"""Which operations of which ranks belong together: collectives of a group, and sends with their
receives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.paired import Paired, Places
from torchscale.features.trace.analysis.stages import StageLayout, partner_column
from torchscale.features.trace.analysis.windows import RankWindow
from torchscale.features.trace.replay.graph import ReplayError
from torchscale.features.trace.span import SEND_RECV
from torchscale.util.units import format_percent

_TIED_SHARE = 0.9
"""Share of the time of communication: with more of it untied, a rank's waits would be taken for its
own time."""


@dataclass(frozen=True)
class Ties:
    """Operations that several ranks take part in: a row for each, a member for each of its ranks.

    Attributes:
        first: Where the members of each row begin, and where those of the last end.
        column: Column of each member's rank.
        place: Position of each member among its rank's collectives.
        op, group: Index into ``ops`` and ``groups``, by row.
        payload_bytes: By row; -1 where it is not known.
        ops: ``all_reduce`` …
        groups: Process groups, for operations that are alike in every step.
    """

    first: Places
    column: Places
    place: Places
    op: Places
    group: Places
    payload_bytes: Places
    ops: tuple[str, ...]
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.op)

    @cached_property
    def sizes(self) -> Places:
        """Number of members of each row."""
        return np.diff(self.first)

    @cached_property
    def used_ops(self) -> list[str]:
        """Names of the operations there are, sorted."""
        return sorted(self.ops[op] for op in np.unique(self.op))

    def are(self, ops: Sequence[str]) -> NDArray[np.bool_]:
        """Which rows are of these operations."""
        numbers = [number for number, op in enumerate(self.ops) if op in ops]
        return np.isin(self.op, numbers)

    def members_of(self, row: int) -> slice:
        """The members of a row."""
        return slice(int(self.first[row]), int(self.first[row + 1]))


def find_ties(ranks: Sequence[RankWindow], paired: Paired, layout: StageLayout) -> Ties:
    """Operations that begin in the windows of all ranks that take part.

    Args:
        ranks: All ranks.
        paired: Collectives in the windows, with the places of each among its rank's.
        layout: The stages, by which sends and receives within process groups find their partners.

    Raises:
        ReplayError: most communication cannot be tied.
    """
    tied = [np.zeros(len(rank.trace.collectives), dtype=bool) for rank in ranks]
    for which, members in zip(tied, paired.by_rank(len(ranks)), strict=True):
        which[paired.place[members]] = True
    messages = [
        message
        for message in _messages(ranks, layout)
        if not any(tied[column][place] for column, place in message.members)
    ]
    for message in messages:
        for column, place in message.members:
            tied[column][place] = True
    _check(ranks, tied)
    return _joined(paired, messages)


class _Message(NamedTuple):
    """A send and its receive: (column of the rank, place among its collectives)."""

    group: str
    payload_bytes: int
    members: tuple[tuple[int, int], tuple[int, int]]


def _joined(paired: Paired, messages: Sequence[_Message]) -> Ties:
    """Paired collectives, then messages."""
    ops, groups = list(paired.ops), list(paired.groups)
    if SEND_RECV not in ops:
        ops.append(SEND_RECV)
    numbers = {name: number for number, name in enumerate(groups)}
    of_message = [numbers.setdefault(message.group, len(numbers)) for message in messages]
    members = np.array([message.members for message in messages], dtype=np.int64).reshape(-1, 2)
    sizes = np.concatenate([paired.sizes, np.full(len(messages), 2)])
    sent = np.full(len(messages), ops.index(SEND_RECV))
    payload = np.array([message.payload_bytes for message in messages], dtype=np.int64)
    return Ties(
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        column=np.concatenate([paired.column, members[:, 0]]).astype(np.int64),
        place=np.concatenate([paired.place, members[:, 1]]).astype(np.int64),
        op=np.concatenate([paired.op, sent]).astype(np.int64),
        group=np.concatenate([paired.group, np.array(of_message, dtype=np.int64)]).astype(np.int64),
        payload_bytes=np.concatenate([paired.payload_bytes, payload]),
        ops=tuple(ops),
        groups=tuple(numbers),
    )


def _messages(ranks: Sequence[RankWindow], layout: StageLayout) -> Iterator[_Message]:
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
            yield _Message(f"{source} to {target}", size, ((source, send), (target, receive)))


def _check(ranks: Sequence[RankWindow], tied: Sequence[NDArray[np.bool_]]) -> None:
    """Whether enough is tied; ``tied`` says of each rank which of its collectives are.

    Raises:
        ReplayError: too little is.
    """
    if len(ranks) < 2:
        return
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
