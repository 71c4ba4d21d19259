"""Changes to a replay: for each, how long every edge of the graph would be."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.micro_batches import MicroBatches, find_micro_batches
from torchscale.features.trace.replay.graph import EdgeKind, Times
from torchscale.features.trace.replay.replay import Replay
from torchscale.features.trace.span import SEND_RECV

_OWN = (EdgeKind.WORK, EdgeKind.HOST_GAP, EdgeKind.INPUT, EdgeKind.PAUSE)
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
        self._steps = replay.boundaries.shape[1] - 1
        self._on_device = any(rank.trace.on_device for rank in replay.ranks)

    def without(self, part: EdgeKind, ranks: Iterable[int] | None = None) -> Times:
        """Edge times without one part of the time of ``ranks`` (columns; all by default)."""
        chosen = np.isin(
            self._edges.rank, list(range(len(self.replay.ranks)) if ranks is None else ranks)
        )
        return np.asarray(self.recorded - np.where(chosen, self._parts[:, part], 0.0))

    def without_common(self, part: EdgeKind) -> Times:
        """Edge times without the share of one part that every rank has; what a rank has more of is
        left to it."""
        spent = self._table((part,)).sum(axis=(1, 2))
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
        changed = np.array([column for column in columns if self.peers(column)], dtype=np.int64)
        for parts in self._groups() if only is None else (only,):
            table = self._table(parts)
            aims = table.copy()
            aims[changed] = self._medians_of_peers(np.sort(table, axis=1), changed)
            order = np.argsort(np.argsort(table[changed], axis=1, kind="stable"), axis=1)
            aims[changed] = np.take_along_axis(aims[changed], order, axis=1)
            self._scale(weights, parts, changed, table, aims)
        return weights

    def steady_work(self) -> Times:
        """All ranks of equal work take, between two collectives, the same in every step: the
        median."""
        weights: Times = self.recorded.copy()
        parts = (EdgeKind.WORK,)
        table = self._table(parts)
        aims = np.empty_like(table)
        for equal in self._equal_ranks:
            aims[equal] = np.median(np.concatenate(table[equal]), axis=0)
        self._scale(weights, parts, self._all_ranks, table, aims)
        return weights

    def balanced_work(self) -> Times:
        """Edge times where ranks of equal work take, in every step and between two collectives, the
        mean of what they took."""
        weights: Times = self.recorded.copy()
        for parts in self._groups():
            table = self._table(parts)
            aims = np.empty_like(table)
            for equal in self._equal_ranks:
                aims[equal] = table[equal].mean(axis=0)
            self._scale(weights, parts, self._all_ranks, table, aims)
        return weights

    def even_stages(self) -> Times | None:
        """Every stage with the same work; ``None`` without stages."""
        stages = self.replay.layout.stages
        if stages is None or len(stages) < 2:
            return None
        weights: Times = self.recorded.copy()
        work = self._table((EdgeKind.WORK,)).sum(axis=(1, 2))
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
        weights: Times = self.recorded.copy()
        payload = self.replay.ties.payload_bytes.astype(np.float64)
        for ties in self._buckets:
            for first, last in _joined(payload[ties], self._may_join[ties], most_bytes):
                edges = np.stack([self._edges_of(tie) for tie in ties[first : last + 1].tolist()])
                taken = self._parts[edges, EdgeKind.TRANSFER]
                ran = _together(self.replay.graph.recorded[self._edges.target[edges]], taken)
                weights[edges] -= taken
                weights[edges[-1]] += np.maximum(ran - latency * (last - first), taken.max(axis=0))
        return None if np.array_equal(weights, self.recorded) else weights

    @cached_property
    def bucket_latency(self) -> float | None:
        """Nanoseconds of an all-reduce of no bytes; ``None`` where the recorded sizes do not tell
        it, or gradients are not all-reduced by all ranks."""
        if not self._are_of_all_ranks(("all_reduce",)):
            return None
        return self._latency(self._of_ops(("all_reduce",)))

    @cached_property
    def bucket_bytes(self) -> float:
        """The largest payload of an all-reduce."""
        ties = self.replay.ties
        sizes = ties.payload_bytes[ties.are(("all_reduce",))]
        if not len(sizes):
            return 0.0
        return float(sizes.max())

    @cached_property
    def _buckets(self) -> list[NDArray[np.int64]]:
        """All-reduces of each step, in their order."""
        of_step: dict[int, list[int]] = defaultdict(list)
        for number in np.flatnonzero(self.replay.ties.are(("all_reduce",))).tolist():
            of_step[int(self.replay.tie_steps[number])].append(number)
        return [np.array(numbers, dtype=np.int64) for numbers in of_step.values()]

    @cached_property
    def _may_join(self) -> NDArray[np.bool_]:
        """Whether no rank does anything between the end of each tie and the beginning of the next
        of its operation and step that follows that end: what waits for an all-reduce before the
        next is no gradient bucket's."""
        graph = self.replay.graph
        after = np.full(len(graph.recorded), np.inf)
        np.minimum.at(after, self._edges.source, graph.recorded[self._edges.target])
        allowed = np.zeros(len(self.replay.ties), dtype=bool)
        for ties in self._buckets:
            for earlier, later in itertools.pairwise(ties.tolist()):
                ends = self._edges.target[self._edges_of(earlier)]
                begins = self.replay.tie_begins[self.replay.ties.members_of(later)]
                allowed[earlier] = bool((after[ends] >= graph.recorded[begins]).all())
        return allowed

    def _edges_of(self, tie: int) -> NDArray[np.int64]:
        """Transfers of a tie, by member."""
        return np.asarray(self._tie_edges[self.replay.ties.members_of(tie)])

    @cached_property
    def _tie_edges(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._edges.tie >= 0)

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

    def peers(self, column: int) -> int:
        """How many other ranks are of equal work: of its stage, or without stages all others; none
        where stages are not known."""
        return len(self._equal_ranks[self._equals[column]]) - 1

    @cached_property
    def _equal_ranks(self) -> list[NDArray[np.int64]]:
        """Columns of ranks of equal work."""
        layout = self.replay.layout
        if layout.stages is not None:
            return [np.array(stage, dtype=np.int64) for stage in layout.stages]
        if layout.reason:
            return list(self._all_ranks[:, None])
        return [self._all_ranks]

    @cached_property
    def _equals(self) -> NDArray[np.int64]:
        """Number of each rank's :attr:`_equal_ranks`."""
        numbers = np.empty(len(self.replay.ranks), dtype=np.int64)
        for number, equal in enumerate(self._equal_ranks):
            numbers[equal] = number
        return numbers

    @property
    def _all_ranks(self) -> NDArray[np.int64]:
        return np.arange(len(self.replay.ranks))

    def _medians_of_peers(self, table: Times, columns: NDArray[np.int64]) -> Times:
        """For each of some ranks with peers the median of its peers' values: ``table`` has a row a
        rank."""
        medians = np.empty((len(columns), *table.shape[1:]))
        for number in np.unique(self._equals[columns]).tolist():
            equal = self._equal_ranks[number]
            wanted = self._equals[columns] == number
            places = np.searchsorted(equal, columns[wanted])
            medians[wanted] = medians_without_each(table[equal], places)
        return medians

    def excess(self) -> dict[int, float]:
        """By how much of its peers' median each rank that has peers takes longer by itself; without
        those whose peers take no time."""
        own = self.own_time()
        columns = np.array([column for column in self._all_ranks.tolist() if self.peers(column)])
        if not len(columns):
            return {}
        typical = self._medians_of_peers(own, columns)
        known = zip(columns.tolist(), own[columns].tolist(), typical.tolist(), strict=True)
        return {column: mine / other - 1 for column, mine, other in known if other > 0}

    def own_time(self) -> NDArray[np.float64]:
        """Nanoseconds that each rank takes by itself, over all steps."""
        return np.asarray(sum(self._table(parts).sum(axis=(1, 2)) for parts in self._groups()))

    def _groups(self) -> tuple[tuple[EdgeKind, ...], ...]:
        """Parts that one line of a rank has: on devices the host's apart from the device's."""
        return ((EdgeKind.WORK,), _OWN[1:]) if self._on_device else (_OWN,)

    def _table(self, parts: Sequence[EdgeKind]) -> NDArray[np.float64]:
        """Nanoseconds by rank, step and segment; all in one segment where ranks of equal work did
        not begin the same number of collectives in every step, but for one."""
        edges = self._edges
        chosen = (
            (edges.rank >= 0)
            & (edges.step >= 0)
            & (edges.step < self._steps)
            & ~edges.launch
            & (edges.tie < 0)
        )
        segment = self._segment[chosen]
        shape = (len(self.replay.ranks), self._steps, int(segment.max(initial=0)) + 1)
        table = np.zeros(shape)
        spent = self._parts[chosen][:, list(parts)].sum(axis=1)
        np.add.at(table, (edges.rank[chosen], edges.step[chosen], segment), spent)
        return table

    @cached_property
    def _segment(self) -> NDArray[np.int64]:
        """Segments as peers have them: what one of them lacks in some step counts to the last that
        all have."""
        edges = self._edges
        last = np.zeros((len(self.replay.ranks), self._steps), dtype=np.int64)
        chosen = (edges.rank >= 0) & (edges.step >= 0) & (edges.step < self._steps)
        np.maximum.at(last, (edges.rank[chosen], edges.step[chosen]), edges.segment[chosen])
        least, most = last.min(axis=1), last.max(axis=1)
        limit = np.zeros(len(last), dtype=np.int64)
        for equal in self._equal_ranks:
            if least[equal].min() >= most[equal].max() - 1:
                limit[equal] = least[equal].min()
        return np.minimum(edges.segment, limit[edges.rank])

    def _scale(
        self,
        weights: Times,
        parts: Sequence[EdgeKind],
        columns: NDArray[np.int64],
        own: NDArray[np.float64],
        aim: NDArray[np.float64],
    ) -> None:
        """Stretch the time of some ranks in each step and segment from ``own`` to ``aim``, which
        have a row for each of all ranks."""
        edges = self._edges
        stretched = np.zeros(len(self.replay.ranks) + 1, dtype=bool)
        stretched[columns] = True  # the last is that of edges of no rank
        chosen = np.flatnonzero(
            stretched[edges.rank] & (edges.step >= 0) & (edges.step < self._steps)
        )
        segment = self._segment[chosen]
        factor = np.divide(aim, own, out=np.ones_like(own), where=own > 0)
        spent = self._parts[chosen][:, list(parts)].sum(axis=1)
        factors = factor[edges.rank[chosen], edges.step[chosen], segment]
        weights[chosen] += spent * (factors - 1.0)

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


def medians_without_each(values: Times, rows: NDArray[np.int64]) -> Times:
    """For each of some rows the median of all others, along the first axis, of two rows or more:
    sorted once, since leaving out a row moves the median by at most one place."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    places = np.empty_like(order)
    numbers = np.arange(len(values)).reshape(-1, *([1] * (values.ndim - 1)))
    np.put_along_axis(places, order, np.broadcast_to(numbers, order.shape), axis=0)
    mine = places[rows]
    others = len(values) - 1
    low, high = (others - 1) // 2, others // 2

    def other(place: int) -> Times:
        return np.asarray(np.where(mine > place, ordered[place], ordered[place + 1]))

    return np.asarray((other(low) + other(high)) / 2)


def _joined(
    sizes: NDArray[np.float64], may_join: NDArray[np.bool_], most_bytes: float
) -> list[tuple[int, int]]:
    """First and last of two or more neighbours that may be joined and hold at most ``most_bytes``
    together."""
    parts: list[tuple[int, int]] = []
    first, held = 0, 0.0
    for place, size in enumerate(sizes.tolist()):
        if place > first and (held + size > most_bytes or not may_join[place - 1]):
            parts.append((first, place - 1))
            first, held = place, 0.0
        held += size
    parts.append((first, len(sizes) - 1))
    return [(begin, end) for begin, end in parts if end > begin]


def _together(ends: Times, lengths: Times) -> Times:
    """Nanoseconds in which at least one of several transfers ran: rows are transfers, columns
    ranks."""
    order = np.argsort(ends - lengths, axis=0, kind="stable")
    end = np.take_along_axis(ends, order, axis=0)
    start = np.take_along_axis(ends - lengths, order, axis=0)
    covered = np.maximum.accumulate(end, axis=0)
    until = np.concatenate([start[:1], covered[:-1]])
    return np.asarray(np.maximum(0.0, end - np.maximum(start, until)).sum(axis=0))
