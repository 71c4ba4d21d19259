"""Which ranks of a recorded pipeline hold equal work: the stages, from who sends to whom and who
reduces with whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchscale.features.trace.analysis.collective_groups import (
    Columns,
    connected_components,
    groups_by_ends,
    groups_by_names,
)
from torchscale.features.trace.span import CollectiveSpans, RankTrace

_RECIPROCAL_SHARE = 0.5
"""Share of a rank's sends that its partner must have received, at least: a recording that starts or
ends between a send and its receive lacks one of them, and one that names other ranks lacks nearly
all."""


@dataclass(frozen=True)
class StageLayout:
    """The ranks of each stage.

    Attributes:
        stages: Columns of each stage's ranks, in the order of the pipeline where it is known, else
            by the lowest rank; ``None`` where they could not be told.
        reason: Why not.
    """

    stages: tuple[Columns, ...] | None
    reason: str = ""

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Column of a rank → its stage, and its place in it."""
        return {
            column: (number, place)
            for number, stage in enumerate(self.stages or ())
            for place, column in enumerate(stage)
        }


def partner_column(position: int, column: int, layout: StageLayout, ranks: int) -> int | None:
    """The rank at a position of this rank's pipeline: a group holds one rank of each stage, or all
    ranks.

    Args:
        position: Place in the process group.
        column: Column of this rank.
        layout: The stages.
        ranks: Number of all ranks.
    """
    stages = layout.stages
    if stages is None and position < ranks:
        return position
    if stages is None or position >= len(stages):
        return None
    _, place = layout.places[column]
    return stages[position][place]


def find_stages(ranks: Sequence[RankTrace]) -> StageLayout:
    """The stages of ranks that send to and receive from each other; none where they do not."""
    if not any(rank.collectives.point_to_point.any() for rank in ranks) or len(ranks) < 2:
        return StageLayout(None)
    partners = _partners(ranks)
    order = _by_positions(ranks) if partners is None else _by_chains(partners, ranks)
    if order is not None:
        return StageLayout(order)
    groups = groups_by_names(ranks, partners) or groups_by_ends(ranks)
    if groups is not None:
        return StageLayout(groups)
    return StageLayout(
        None,
        "the recording says neither to which rank each send goes nor which ranks form a process "
        "group, so it is not known which ranks hold equal work",
    )


def _partners(ranks: Sequence[RankTrace]) -> dict[int, set[int]] | None:
    """Column → columns that it sends to or receives from; ``None`` where that is not recorded of
    all sends, or what is recorded does not fit together."""
    columns = {rank.rank: column for column, rank in enumerate(ranks)}
    counts: dict[tuple[int, int, int], int] = {}
    for column, rank in enumerate(ranks):
        collectives = rank.collectives
        chosen = collectives.point_to_point
        ways = np.stack([collectives.peer[chosen], collectives.direction[chosen]], axis=1)
        for (peer, direction), count in zip(
            *np.unique(ways, axis=0, return_counts=True), strict=True
        ):
            other = columns.get(int(peer))
            if other is None or other == column:
                return None
            counts[column, other, int(direction)] = int(count)
    for (column, other, direction), count in counts.items():
        if counts.get((other, column, -direction), 0) < _RECIPROCAL_SHARE * count:
            return None
    partners: dict[int, set[int]] = defaultdict(set)
    for column, other, _ in counts:
        partners[column].add(other)
    if not counts:
        return None
    return dict(partners)


def _by_chains(
    partners: dict[int, set[int]], ranks: Sequence[RankTrace]
) -> tuple[Columns, ...] | None:
    """Every pipeline is a chain of partners; the n-th ranks of all chains are a stage."""
    if len(partners) < len(ranks):
        return None
    chains = []
    for members in connected_components(range(len(ranks)), partners.items()):
        chain = _chain(members, partners, ranks)
        if chain is None:
            return None
        chains.append(chain)
    if len({len(chain) for chain in chains}) != 1:
        return None
    return tuple(tuple(sorted(stage)) for stage in zip(*chains, strict=True))


def _chain(
    members: Columns, partners: dict[int, set[int]], ranks: Sequence[RankTrace]
) -> list[int] | None:
    """The members from the first stage to the last: along the partners of a path; around a ring,
    which interleaved stages are, from the rank whose first operation of a step is a send."""
    ends = [column for column in members if len(partners[column]) == 1]
    first = {
        column: _first_of_steps(ranks[column], lambda spans, place: int(spans.direction[place]))
        for column in members
    }
    heads = [column for column in members if first[column] == 1]
    if len(members) == 2 and len(heads) == 1:
        return [heads[0], *(set(members) - set(heads))]
    if len(members) == 2:
        return sorted(members)
    if len(ends) == 2 and all(len(partners[column]) <= 2 for column in members):
        start = min(ends)
        if len(heads) == 1 and heads[0] in ends:
            start = heads[0]
        return _path(start, len(members), partners)
    if len(heads) != 1:
        return None
    columns = {rank.rank: column for column, rank in enumerate(ranks)}
    following = {}
    for column in members:
        source = _first_of_steps(ranks[column], lambda spans, place: int(spans.peer[place]))
        if column != heads[0] and source is not None and source in columns:
            following[columns[source]] = column
    chain = heads
    while len(chain) < len(members):
        column = following.get(chain[-1], chain[0])
        if column in chain:
            return None
        chain = [*chain, column]
    return chain


def _path(start: int, length: int, partners: Mapping[int, set[int]]) -> list[int]:
    """``length`` columns along a chain of ranks, from ``start`` to one partner after the other,
    never back."""
    before, column = -1, start
    path = [column]
    while len(path) < length:
        before, column = column, next(iter(partners[column] - {before}))
        path.append(column)
    return path


def _by_positions(ranks: Sequence[RankTrace]) -> tuple[Columns, ...] | None:
    """Stages from sends that name their partner by its position in a group of its own for each
    pipeline: the first stage begins a step by sending, every other by receiving from the position
    before its own. ``None`` where sends do not give whole stages."""
    positions: dict[int, list[int]] = defaultdict(list)
    for column, rank in enumerate(ranks):
        collectives = rank.collectives
        chosen = collectives.point_to_point
        known = (collectives.peer[chosen] >= 0).all() and (collectives.direction[chosen] != 0).all()
        if not collectives.peers_within_group or not chosen.any() or not known:
            return None
        first = _first_of_steps(rank, _stage_position)
        if first is None:
            return None
        positions[first].append(column)
    stages = tuple(tuple(positions[position]) for position in sorted(positions))
    whole = (
        sorted(positions) == list(range(len(stages))) and len({len(stage) for stage in stages}) == 1
    )
    if not whole or len(stages) < 2:
        return None
    return stages


def _stage_position(collectives: CollectiveSpans, place: int) -> int:
    """Position of the stage of a rank whose step begins with this send or receive."""
    if collectives.direction[place] > 0:
        return 0
    return int(collectives.peer[place]) + 1


def _first_of_steps(rank: RankTrace, read: Callable[..., int]) -> int | None:
    """``read`` of the first send or receive of most steps; without steps, of the recording."""
    collectives = rank.collectives
    places = np.flatnonzero(collectives.point_to_point)
    if not len(places):
        return None
    begins = collectives.start[places[:1]]
    if len(rank.steps):
        begins = rank.steps.start
    index = np.searchsorted(collectives.start[places], begins)
    values = [read(collectives, places[place]) for place in index if place < len(places)]
    if not values:
        return None
    return Counter(values).most_common(1)[0][0]
