"""Compute of a rank of a pipeline between its sends and receives, and the micro-batches that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import Matrix
from torchscale.features.trace.analysis.stages import StageLayout, partner_column
from torchscale.features.trace.analysis.windows import RankWindow

_CHUNK_SHARE = 0.05
"""Share of the mean compute between two sends or receives: what is shorter belongs to calls that
were made together, between which only buffers are prepared."""


class _Way(IntEnum):
    """Columns of the operations between two chunks of compute."""

    SEND_FORWARD = 0
    RECEIVE_FORWARD = 1
    SEND_BACKWARD = 2
    RECEIVE_BACKWARD = 3


_WAYS = {
    (True, 1): _Way.SEND_FORWARD,
    (True, -1): _Way.SEND_BACKWARD,
    (False, 1): _Way.RECEIVE_BACKWARD,
    (False, -1): _Way.RECEIVE_FORWARD,
}
"""Whether it is sent, and how many stages further its partner is."""


@dataclass(frozen=True)
class Chunks:
    """Compute of one rank between its sends and receives, in order.

    Attributes:
        begin: Nanoseconds; each lasts until the next begins.
        step: Place of its step.
        work: Nanoseconds of compute.
        forward, backward: Which micro-batch's pass it is or contains; -1 for none.
        tail: Whether the step ends with it: the optimizer and the synchronization of gradients are
            part of it.
    """

    begin: NDArray[np.int64]
    step: NDArray[np.int64]
    work: NDArray[np.float64]
    forward: NDArray[np.int64]
    backward: NDArray[np.int64]
    tail: NDArray[np.bool_]

    def passes(self, lengths: Matrix) -> Matrix:
        """Sum of the lengths (step × micro-batch) of the forward and of the backward passes of each
        chunk."""
        return np.stack(
            [
                np.where(which >= 0, lengths[self.step, which], 0.0)
                for which in (self.forward, self.backward)
            ],
            axis=1,
        )


def rank_chunks(
    ranks: Sequence[RankWindow],
    column: int,
    layout: StageLayout,
    stages: Sequence[Sequence[int]],
    columns_of: Mapping[int, int],
) -> Chunks | None:
    """Chunks of compute of one rank; ``None`` where it is not known what its sends and receives
    carry."""
    ways = _ways(ranks, column, layout, columns_of)
    if ways is None:
        return None
    stage, _ = layout.places[column]
    return _chunks(ranks[column], ways, first=stage == 0, last=stage == len(stages) - 1)


def micro_batch_count(chunks: Sequence[Chunks], steps: int) -> int | None:
    """Number of micro-batches in every step of every rank; ``None`` where there are fewer than two,
    or their number differs."""
    counts = {int(of.forward.max(initial=-1)) + 1 for of in chunks}
    count = counts.pop()
    if counts or count < 2 or not all(_is_whole(of, count, steps) for of in chunks):
        return None
    return count


def _chunks(rank: RankWindow, ways: dict[int, _Way], *, first: bool, last: bool) -> Chunks:
    """The chunks of a rank of the first, the last or another stage, by what its sends and receives
    (places) carry."""
    places = np.array(list(ways), dtype=np.int64)
    times = np.concatenate([rank.steps.start, rank.trace.collectives.start[places]])
    kinds = np.concatenate(
        [np.full(len(rank.steps), -1), np.array(list(ways.values()), dtype=np.int64)]
    )
    order = np.lexsort((kinds, times))
    times, kinds = times[order], kinds[order]
    work = rank.compute.within(times, np.append(times[1:], rank.end)).astype(np.float64)
    long = work >= _CHUNK_SHARE * work.sum() / len(places)
    begin = np.flatnonzero((kinds < 0) | np.concatenate([[True], long[:-1]]))
    begins = np.zeros((len(begin), len(_Way)), dtype=bool)
    number = np.searchsorted(begin, np.arange(len(times)), side="right") - 1
    begins[number[kinds >= 0], kinds[kinds >= 0]] = True
    step = np.cumsum(kinds < 0)[begin] - 1
    starts = np.searchsorted(step, step)
    before = np.cumsum(begins, axis=0)
    seen = before - (before - begins)[starts]
    tail = np.append(step[1:] != step[:-1], True)
    follows = np.where(tail[:, None], False, np.roll(begins, -1, axis=0))
    send_forward: _Way | None = _Way.SEND_FORWARD
    send_backward: _Way | None = _Way.SEND_BACKWARD
    if last:
        send_forward = None
    if first:
        send_backward = None
    forward = _of_pass(begins, follows, seen, (_Way.RECEIVE_FORWARD, send_forward))
    backward = _of_pass(begins, follows, seen, (_Way.RECEIVE_BACKWARD, send_backward))
    return Chunks(times[begin], step, np.add.reduceat(work, begin), forward, backward, tail)


def _of_pass(
    begins: NDArray[np.bool_],
    follows: NDArray[np.bool_],
    seen: NDArray[np.int64],
    ways: tuple[_Way, _Way | None],
) -> NDArray[np.int64]:
    """The micro-batch whose pass each chunk is: the one that is sent after it, or where this stage
    sends none, the one that was received before it."""
    receive, send = ways
    if send is not None:
        return np.where(follows[:, send], seen[:, send], -1)
    return np.where(begins[:, receive], seen[:, receive] - 1, -1)


def _ways(
    ranks: Sequence[RankWindow], column: int, layout: StageLayout, columns_of: Mapping[int, int]
) -> dict[int, _Way] | None:
    """What each send and receive in the window carries, by its place; ``None`` where there are
    none, or one does not go to or come from a neighbouring stage."""
    rank, collectives = ranks[column], ranks[column].trace.collectives
    inside = (
        collectives.point_to_point
        & (collectives.start >= rank.start)
        & (collectives.start < rank.end)
    )
    stage, _ = layout.places[column]
    known: dict[tuple[int, int], _Way] = {}
    ways: dict[int, _Way] = {}
    for place in np.flatnonzero(inside).tolist():
        peer, direction = int(collectives.peer[place]), int(collectives.direction[place])
        if (peer, direction) not in known:
            if peer < 0 or not direction:
                return None
            if collectives.peers_within_group:
                partner = partner_column(peer, column, layout, len(ranks))
            else:
                partner = columns_of.get(peer)
            if partner is None:
                return None
            way = _WAYS.get((direction > 0, layout.places[partner][0] - stage))
            if way is None:
                return None
            known[peer, direction] = way
        ways[place] = known[peer, direction]
    return ways or None


def _is_whole(chunks: Chunks, count: int, steps: int) -> bool:
    """Whether each step has a forward pass of each micro-batch, and one backward pass of each or
    none."""
    for which in (chunks.forward, chunks.backward):
        chosen = which >= 0
        table = np.zeros((steps, int(which.max(initial=0)) + 1), dtype=np.int64)
        np.add.at(table, (chunks.step[chosen], which[chosen]), 1)
        if which is chunks.backward and not table.any():
            continue
        if table.shape[1] != count or not (table == 1).all():
            return False
    return True
