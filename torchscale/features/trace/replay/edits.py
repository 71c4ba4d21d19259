"""Changes to a replay: for each, how long every edge of the graph would be."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.micro_batches import MicroBatches, find_micro_batches
from torchscale.features.trace.replay.gradient_buckets import GradientBuckets
from torchscale.features.trace.replay.graph import EdgeKind, Times
from torchscale.features.trace.replay.own_times import OwnTimes
from torchscale.features.trace.replay.replay import Replay
from torchscale.features.trace.span import SEND_RECV

_SIZE_RANGE = 4.0
"""Largest over smallest payload, from which on latency can be told from bandwidth: with closer
sizes the noise of the times decides."""
_GRADIENT_OPS = ("all_reduce", "reduce_scatter")


class Edits:
    """Weights of the edges of a replay, as recorded and changed."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._edges = replay.graph.edges
        self._parts = self._edges.parts
        self.recorded: Times = self._parts.sum(axis=1)
        self.own, self.buckets = OwnTimes(replay), GradientBuckets(replay)

    def without(self, part: EdgeKind, ranks: Iterable[int] | None = None) -> Times:
        """Edge times without one part of the time of ``ranks`` (columns; all by default)."""
        chosen = np.isin(
            self._edges.rank, list(range(len(self.replay.ranks)) if ranks is None else ranks)
        )
        return np.asarray(self.recorded - np.where(chosen, self._parts[:, part], 0.0))

    def without_common(self, part: EdgeKind) -> Times:
        """Edge times without the share of one part that every rank has; what a rank has more of is
        left to it."""
        spent = self.own.table((part,)).sum(axis=(1, 2))
        shares = np.divide(spent.min(), spent, out=np.zeros_like(spent), where=spent > 0)
        removed = np.where(self._edges.rank >= 0, shares[self._edges.rank], 0.0)
        return np.asarray(self.recorded - self._parts[:, part] * removed)

    def like_peers(self, columns: Iterable[int], only: tuple[EdgeKind, ...] | None = None) -> Times:
        """Ranks with the median of their peers' times: of each stretch between two collectives the
        rank gets what its peers took, its shortest their shortest and its longest their longest, in
        the order of its own steps.

        Args:
            columns: The ranks.
            only: Some parts of their time; by default all that is their own.
        """
        weights: Times = self.recorded.copy()
        changed = np.array([column for column in columns if self.own.peers(column)], dtype=np.int64)
        for parts in self.own.groups() if only is None else (only,):
            table = self.own.table(parts)
            aims = table.copy()
            aims[changed] = self.own.medians_of_peers(np.sort(table, axis=1), changed)
            order = np.argsort(np.argsort(table[changed], axis=1, kind="stable"), axis=1)
            aims[changed] = np.take_along_axis(aims[changed], order, axis=1)
            self.own.scale(weights, parts, changed, table, aims)
        return weights

    def steady_work(self) -> Times:
        """All ranks of equal work take, between two collectives, the same in every step: the
        median."""
        weights: Times = self.recorded.copy()
        parts = (EdgeKind.WORK,)
        table = self.own.table(parts)
        aims = np.empty_like(table)
        for equal in self.own.equal_ranks:
            aims[equal] = np.median(np.concatenate(table[equal]), axis=0)
        self.own.scale(weights, parts, self.own.all_ranks, table, aims)
        return weights

    def balanced_work(self) -> Times:
        """Edge times where ranks of equal work take, in every step and between two collectives, the
        mean of what they took."""
        weights: Times = self.recorded.copy()
        for parts in self.own.groups():
            table = self.own.table(parts)
            aims = np.empty_like(table)
            for equal in self.own.equal_ranks:
                aims[equal] = table[equal].mean(axis=0)
            self.own.scale(weights, parts, self.own.all_ranks, table, aims)
        return weights

    def even_stages(self) -> Times | None:
        """Every stage with the same work; ``None`` without stages."""
        stages = self.replay.layout.stages
        if stages is None or len(stages) < 2:
            return None
        weights: Times = self.recorded.copy()
        work = self.own.table((EdgeKind.WORK,)).sum(axis=(1, 2))
        of_stage = [float(np.median(work[list(stage)])) for stage in stages]
        factors = np.ones(len(self.replay.ranks))
        for stage, own in zip(stages, of_stage, strict=True):
            if own > 0:
                factors[list(stage)] = float(np.mean(of_stage)) / own
        chosen = self._edges.rank >= 0
        factor = factors[self._edges.rank[chosen]]
        weights[chosen] += self._parts[chosen, EdgeKind.WORK] * (factor - 1.0)
        return weights

    def even_micro_batches(self) -> Times | None:
        """Every micro-batch with the mean length of its step; ``None`` where their lengths cannot
        be told."""
        found = self.micro_batches
        if found is None:
            return None
        weights: Times = self.recorded.copy()
        ends = self.replay.graph.recorded[self._edges.target] + self.replay.origin
        for column, (begin, factors) in enumerate(zip(found.begin, found.factors, strict=True)):
            chosen = self._edges_of_rank[column]
            # Work ends with its edge; its middle is in its chunk however times are rounded.
            middle = (
                ends[chosen] - self._parts[chosen, EdgeKind.WORK] / 2 + self.replay.offsets[column]
            )
            chunk = np.searchsorted(begin, middle, side="right") - 1
            inside = chunk >= 0
            chosen, chunk = chosen[inside], chunk[inside]
            weights[chosen] += self._parts[chosen, EdgeKind.WORK] * (factors[chunk] - 1.0)
        return weights

    @cached_property
    def micro_batches(self) -> MicroBatches | None:
        """Micro-batches of a pipeline; ``None`` without one, or where they cannot be identified."""
        return find_micro_batches(self.replay.ranks, self.replay.layout)

    def larger_buckets(self, most_bytes: float) -> Times | None:
        """Neighbouring all-reduces of a step that together hold at most ``most_bytes`` become one,
        which begins when the last of them would and saves the latencies of the others; ``None``
        where none are joined. What a rank waits for before it calls the next one stays by
        itself."""
        latency = self.bucket_latency
        if latency is None:
            return None
        return self.buckets.joined(self.recorded, most_bytes, latency)

    @cached_property
    def bucket_latency(self) -> float | None:
        """Nanoseconds of an all-reduce of no bytes; ``None`` where the recorded sizes do not tell
        it, or gradients are not all-reduced by all ranks."""
        if not self._are_of_all_ranks(("all_reduce",)):
            return None
        return self._latency(self._of_ops(("all_reduce",)))

    def steady_transfers(self, op: str) -> Times:
        """Every transfer of an operation takes what the same one takes in the median step."""
        weights: Times = self.recorded.copy()
        for edges in self._alike(op):
            weights[edges] += (
                np.median(self._parts[edges, EdgeKind.TRANSFER])
                - self._parts[edges, EdgeKind.TRANSFER]
            )
        return weights

    def faster_link(self, factor: float) -> tuple[Times, bool]:
        """Transfers whose time for bytes is divided by ``factor`` and whose latency stays; and
        whether latency could be told from the recorded sizes of any operation: the lowest found is
        that of operations whose sizes are too alike. Where it could not, all of a transfer is taken
        for bytes."""
        weights: Times = self.recorded.copy()
        by_op = {op: self._of_ops((op,)) for op in self.replay.ties.used_ops}
        latencies = {op: self._latency(edges) for op, edges in by_op.items()}
        told = [latency for latency in latencies.values() if latency is not None]
        for op, edges in by_op.items():
            latency = latencies[op] if latencies[op] is not None else min(told, default=0.0)
            taken = self._parts[edges, EdgeKind.TRANSFER]
            fixed = np.minimum(taken, latency or 0.0)
            weights[edges] += fixed + (taken - fixed) / factor - taken
        return weights, bool(told)

    def no_gradient_sync(self) -> Times | None:
        """Steps without the synchronization of gradients; ``None`` where it cannot be told from
        other communication."""
        if not self._are_of_all_ranks(_GRADIENT_OPS):
            return None
        weights: Times = self.recorded.copy()
        weights[self._of_ops(_GRADIENT_OPS)] = -np.inf
        return weights

    def _are_of_all_ranks(self, ops: Sequence[str]) -> bool:
        """Whether there are operations of these kinds, all ranks take part in each, and no ranks
        are stages."""
        replay = self.replay
        chosen = replay.ties.are(ops)
        staged = replay.layout.stages is not None or replay.ties.are((SEND_RECV,)).any()
        if staged or not chosen.any():
            return False
        return bool((replay.ties.sizes[chosen] >= len(replay.ranks)).all())

    @cached_property
    def _edges_of_rank(self) -> list[NDArray[np.int64]]:
        """Edges of each rank's time."""
        order = np.argsort(self._edges.rank, kind="stable")
        bounds = np.searchsorted(self._edges.rank[order], np.arange(len(self.replay.ranks) + 1))
        return [order[begin:end] for begin, end in itertools.pairwise(bounds.tolist())]

    def _of_ops(self, ops: Sequence[str]) -> NDArray[np.int64]:
        which = np.append(self.replay.ties.are(ops), False)  # the last is that of other edges
        return np.flatnonzero(which[self._edges.tie])

    def _alike(self, op: str) -> list[NDArray[np.int64]]:
        """Edges of the transfers that are the same in every step: by rank, group, size and place in
        the step."""
        edges = self._of_ops((op,))
        ties, tie = self.replay.ties, self._edges.tie[edges]
        seen: dict[tuple[int, int, int, int], int] = defaultdict(int)
        alike: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
        described = zip(
            edges.tolist(),
            self._edges.rank[edges].tolist(),
            ties.group[tie].tolist(),
            ties.payload_bytes[tie].tolist(),
            self._edges.step[edges].tolist(),
            strict=True,
        )
        for edge, rank, group, size, step in described:
            place = seen[rank, group, size, step]
            alike[rank, group, size, place].append(edge)
            seen[rank, group, size, step] += 1
        return [np.array(same, dtype=np.int64) for same in alike.values()]

    def _latency(self, edges: NDArray[np.int64]) -> float | None:
        """Nanoseconds of an empty transfer: the intercept of t = a + b·bytes over the medians of
        each size, with relative weights; ``None`` where sizes are too few or too close, or not
        known."""
        sizes = self.replay.ties.payload_bytes[self._edges.tie[edges]].astype(np.float64)
        known = np.unique(sizes)
        if not len(known) or known[0] <= 0 or known[-1] < _SIZE_RANGE * known[0]:
            return None
        times = np.array(
            [np.median(self._parts[edges[sizes == size], EdgeKind.TRANSFER]) for size in known]
        )
        if not (times > 0).all():
            return None
        rows = np.stack([np.ones_like(known), known], axis=1) / times[:, None]
        (intercept, _), *_ = np.linalg.lstsq(rows, np.ones_like(known), rcond=None)
        return float(np.clip(intercept, 0.0, times.min()))
