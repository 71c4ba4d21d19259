"""How long each micro-batch of a recorded pipeline computes, and whether all stages agree that some
are longer.

A long sequence is long on every stage; a rank that is slow for a moment is not. So the lengths that
one rank shows are believed as far as another rank of its pipeline, which computes the same
micro-batches at other times, shows them too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import Matrix, MicroBatchLengths, SignalSeries
from torchscale.features.trace.analysis.pipeline_chunks import (
    Chunks,
    micro_batch_count,
    rank_chunks,
)
from torchscale.features.trace.analysis.stages import StageLayout
from torchscale.features.trace.analysis.windows import NS, RankWindow
from torchscale.util.optional import complete


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
        rank_chunks(ranks, column, layout, stages, columns_of) for column in range(len(ranks))
    )
    if chunks is None:
        return None
    count = micro_batch_count(chunks, len(ranks[0].steps))
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


def _compare(pipeline: Sequence[Chunks], count: int) -> tuple[Matrix, SignalSeries] | None:
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


def _shown(chunks: Chunks, count: int) -> Matrix | None:
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


def _weights(chunks: Chunks, lengths: Matrix) -> NDArray[np.float64]:
    """Nanoseconds of a forward and of a backward pass of a micro-batch of mean length: least
    squares over the chunks. Of a rank that never does one without the other, the smallest that
    explain the sum."""
    chosen = _judged(chunks, lengths.shape[1])
    solution, *_ = np.linalg.lstsq(chunks.passes(lengths)[chosen], chunks.work[chosen], rcond=None)
    return np.asarray(np.maximum(solution, 0.0))


def _judged(chunks: Chunks, count: int) -> NDArray[np.bool_]:
    """Chunks that are nothing but passes: the last backward pass also hands gradients to their
    synchronization."""
    passes = (chunks.forward >= 0) | (chunks.backward >= 0)
    return np.asarray(passes & ~chunks.tail & (chunks.backward != count - 1))


def _agreement(chunks: Chunks, lengths: Matrix) -> SignalSeries:
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


def _even_factors(chunks: Chunks, lengths: Matrix) -> NDArray[np.float64]:
    """What each chunk's compute is multiplied by when each micro-batch gets the mean length of its
    step."""
    excess = chunks.passes(lengths - 1.0) @ _weights(chunks, lengths)
    share = np.divide(excess, chunks.work, out=np.zeros(len(excess)), where=chunks.work > 0)
    return np.asarray(np.clip(1.0 - share, 0.0, math.inf))
