"""How long each micro-batch of a recorded pipeline computes, and whether all stages agree that some
are longer.

A long sequence is long on every stage; a rank that is slow for a moment is not. So the lengths that
one rank shows are believed as far as another rank of its pipeline, which computes the same
micro-batches at other times, shows them too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import Matrix, MicroBatchLengths, SignalSeries
from torchscale.features.trace.analysis.stages import StageLayout, partner_column
from torchscale.features.trace.analysis.windows import NS, RankWindow
from torchscale.util.optional import complete

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
class _Chunks:
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


@dataclass(frozen=True)
class MicroBatches:
    """The micro-batches of a recording.

    Attributes:
        lengths: What a diagnosis goes by.
        begin: Start of each chunk of compute, in nanoseconds, by column of the rank; each lasts
            until the next.
        factors: What the compute of each chunk is multiplied by where all micro-batches of a step
            are equally long.
    """

    lengths: MicroBatchLengths
    begin: tuple[NDArray[np.int64], ...]
    factors: tuple[NDArray[np.float64], ...]


def find_micro_batches(ranks: Sequence[RankWindow], layout: StageLayout) -> MicroBatches | None:
    """Compare the micro-batches of each step; ``None`` where they cannot be told: no stages,
    partners that are not recorded, stages that are interleaved, steps of different numbers of
    micro-batches."""
    stages = layout.stages
    if stages is None or len(stages) < 2 or not len(ranks[0].steps):
        return None
    columns_of = {rank.trace.rank: column for column, rank in enumerate(ranks)}
    chunks = complete(
        _rank_chunks(ranks, column, layout, stages, columns_of) for column in range(len(ranks))
    )
    if chunks is None:
        return None
    count = _micro_batch_count(chunks, len(ranks[0].steps))
    if count is None:
        return None
    pipelines = [[stage[copy] for stage in stages] for copy in range(len(stages[0]))]
    compared = complete(
        [_compare([chunks[column] for column in columns], count) for columns in pipelines]
    )
    if compared is None:
        return None
    factors: list[NDArray[np.float64]] = [np.ones(0)] * len(ranks)
    seconds = []
    for columns, (relative, _) in zip(pipelines, compared, strict=True):
        for column in columns:
            factors[column] = _even_factors(chunks[column], relative)
            seconds.append(float(_weights(chunks[column], relative).sum()) * NS)
    relatives = np.stack([relative for relative, _ in compared])
    lengths = MicroBatchLengths(
        relative=relatives.mean(axis=(0, 1)),
        longest=float(relatives.max(axis=2).mean()),
        shared_variance=np.mean([shared for _, shared in compared], axis=0),
        seconds=float(np.mean(seconds)),
    )
    return MicroBatches(lengths, tuple(of.begin for of in chunks), tuple(factors))


def _rank_chunks(
    ranks: Sequence[RankWindow],
    column: int,
    layout: StageLayout,
    stages: Sequence[Sequence[int]],
    columns_of: Mapping[int, int],
) -> _Chunks | None:
    """Chunks of compute of one rank; ``None`` where it is not known what its sends and receives
    carry."""
    ways = _ways(ranks, column, layout, columns_of)
    if ways is None:
        return None
    stage, _ = layout.places[column]
    return _chunks(ranks[column], ways, first=stage == 0, last=stage == len(stages) - 1)


def _micro_batch_count(chunks: Sequence[_Chunks], steps: int) -> int | None:
    """Number of micro-batches in every step of every rank; ``None`` where there are fewer than two,
    or their number differs."""
    counts = {int(of.forward.max(initial=-1)) + 1 for of in chunks}
    count = counts.pop()
    if counts or count < 2 or not all(_is_whole(of, count, steps) for of in chunks):
        return None
    return count


def _chunks(rank: RankWindow, ways: dict[int, _Way], *, first: bool, last: bool) -> _Chunks:
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
    return _Chunks(times[begin], step, np.add.reduceat(work, begin), forward, backward, tail)


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


def _is_whole(chunks: _Chunks, count: int, steps: int) -> bool:
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


def _compare(pipeline: Sequence[_Chunks], count: int) -> tuple[Matrix, SignalSeries] | None:
    """Relative lengths (step × micro-batch, mean 1 in a step), and of each step the variance of
    lengths on which ranks of the pipeline agree; ``None`` where no rank shows every micro-batch by
    itself."""
    shown = [
        (number, lengths)
        for number, of in enumerate(pipeline)
        if (lengths := _shown(of, count)) is not None
    ]
    if not shown:
        return None
    shared = [
        _agreement(other, lengths)
        for number, lengths in shown
        for other_number, other in enumerate(pipeline)
        if other_number != number
    ]
    return np.mean([lengths for _, lengths in shown], axis=0), np.mean(shared, axis=0)


def _shown(chunks: _Chunks, count: int) -> Matrix | None:
    """Lengths by a rank that has a chunk for every micro-batch alone: of its forward pass, or of
    both passes."""
    both = chunks.forward == chunks.backward
    for alone in (both, chunks.backward < 0):
        chosen = alone & (chunks.forward >= 0) & ~chunks.tail
        table = np.zeros((int(chunks.step.max()) + 1, count))
        table[chunks.step[chosen], chunks.forward[chosen]] = chunks.work[chosen]
        if (table > 0).all():
            return np.asarray(table / table.mean(axis=1, keepdims=True))
    return None


def _weights(chunks: _Chunks, lengths: Matrix) -> NDArray[np.float64]:
    """Nanoseconds of a forward and of a backward pass of a micro-batch of mean length: least
    squares over the chunks. Of a rank that never does one without the other, the smallest that
    explain the sum."""
    chosen = _judged(chunks, lengths.shape[1])
    solution, *_ = np.linalg.lstsq(chunks.passes(lengths)[chosen], chunks.work[chosen], rcond=None)
    return np.asarray(np.maximum(solution, 0.0))


def _judged(chunks: _Chunks, count: int) -> NDArray[np.bool_]:
    """Chunks that are nothing but passes: the last backward pass also hands gradients to their
    synchronization."""
    passes = (chunks.forward >= 0) | (chunks.backward >= 0)
    return np.asarray(passes & ~chunks.tail & (chunks.backward != count - 1))


def _agreement(chunks: _Chunks, lengths: Matrix) -> SignalSeries:
    """The variance, in each step, of another rank's lengths that this rank shows too: the slope of
    its times over those that the lengths predict, times their variance. Noise of either rank is in
    neither factor of the slope together."""
    weights = _weights(chunks, lengths)
    chosen = _judged(chunks, lengths.shape[1])
    usual = (chunks.passes(np.ones_like(lengths)) @ weights)[chosen]
    usual = np.where(usual > 0, usual, np.inf)
    predicted = (chunks.passes(lengths) @ weights)[chosen] / usual - 1
    observed = chunks.work[chosen] / usual - 1
    step, steps = chunks.step[chosen], len(lengths)
    together = np.bincount(step, predicted * observed, steps)
    own = np.bincount(step, predicted**2, steps)
    slope = np.divide(together, own, out=np.zeros(steps), where=own > 0)
    return np.asarray(slope * lengths.var(axis=1))


def _even_factors(chunks: _Chunks, lengths: Matrix) -> NDArray[np.float64]:
    """What each chunk's compute is multiplied by when each micro-batch gets the mean length of its
    step."""
    excess = chunks.passes(lengths - 1.0) @ _weights(chunks, lengths)
    share = np.divide(excess, chunks.work, out=np.zeros(len(excess)), where=chunks.work > 0)
    return np.asarray(np.clip(1.0 - share, 0.0, math.inf))
