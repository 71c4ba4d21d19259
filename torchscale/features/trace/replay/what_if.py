"""Predictions from a replay, ranked by what they would give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from torchscale.features.trace.replay.edits import Edits
from torchscale.features.trace.replay.graph import EdgeKind, Times
from torchscale.features.trace.replay.replay import Replay
from torchscale.features.trace.span import RankTrace
from torchscale.schema.profiles.what_if import Change, WhatIf, WhatIfRow

_LINK_FACTOR = 2.0
"""Factor on the bandwidth of the link that is asked about: twice the bandwidth, such as the next
generation of a network has."""
_MAX_RANKS = 16
"""Ranks that are replayed one by one: of more, those that take longest beside their peers."""
_AT_ONCE = 16
"""Variants that are evaluated together."""
_EDGES_AT_ONCE = 1 << 23
"""Edges of all variants that are evaluated together, 64 MB: of a large recording fewer variants
are."""
_BYTES_ASSUMED = "no latency: sizes too alike to measure it"
_SHARE_ASSUMED = "latency stays"
_OPTIMIZER_ASSUMED = "optimizer in both passes"
_BUCKETS_ASSUMED = "buckets joined whole"
_HOST_WORK = (EdgeKind.HOST_GAP, EdgeKind.PAUSE)
"""Parts of the host's time of all ranks at once, on CPUs. A wait for data may be a wait for
anything."""
_BUCKET_FACTORS = (
    (2.0, "gradient buckets 2x as large"),
    (4.0, "gradient buckets 4x as large"),
    (np.inf, "one bucket"),
)
"""Factors on the size of the largest recorded bucket."""


Weights = Callable[[], Times]
"""Makes the times of all edges when they are needed: all variants' together may not fit in
memory."""


class _Variant(NamedTuple):
    change: Change
    label: str
    ranks: tuple[int, ...]
    weights: Weights
    assumption: str = ""


def predict_changes(replay: Replay) -> WhatIf:
    """What the step would be with each change that the recording can tell about.

    Raises:
        ReplayError: moments follow each other in a circle.
    """
    edits = Edits(replay)
    variants = [*_of_ranks(edits), *_of_stages(edits), *_of_communication(edits), *_of_parts(edits)]
    base, *steps = replayed_steps(
        replay, [as_is(edits.recorded), *(one.weights for one in variants)]
    )
    notes = []
    rows = []
    for variant, seconds in zip(variants, steps, strict=True):
        gained = base - seconds
        if variant.change is Change.ACCUMULATION:
            gained /= 2
        rows.append(
            WhatIfRow(
                change=variant.change,
                label=variant.label,
                ranks=variant.ranks,
                step_seconds=replay.measured - gained,
                gain_percent=gained / replay.measured * 100,
                assumption=variant.assumption,
            )
        )
    crowded = crowded_ranks(replay)
    if crowded:
        notes.append(
            f"no prediction for less host work: {crowded}, so that less of it would also free "
            "CPUs for others"
        )
    if replay.layout.reason:
        notes.append(f"ranks are not compared with one another: {replay.layout.reason}")
    rows.sort(key=lambda row: -row.gain_percent)
    return WhatIf(
        rows=tuple(rows),
        measured_step_seconds=replay.measured,
        replay_error_percent=replay.error[1] * 100,
        notes=tuple(notes),
    )


def _of_ranks(edits: Edits) -> list[_Variant]:
    replay = edits.replay
    excess = edits.own.excess()
    if not excess:
        return []
    numbers = [rank.trace.rank for rank in replay.ranks]
    slow = [column for column, share in excess.items() if share > 0]
    variants = [
        _Variant(
            Change.RANK_LIKE_PEERS,
            f"rank {numbers[column]} as fast as the median of its peers",
            (numbers[column],),
            partial(edits.like_peers, [column]),
        )
        for column in sorted(slow, key=lambda column: -excess[column])[:_MAX_RANKS]
    ]
    if len(slow) > 1:
        ranks = tuple(numbers[column] for column in slow)
        weights = partial(edits.like_peers, slow)
        variants.append(
            _Variant(
                Change.NO_STRAGGLER, "no rank slower than the median of its peers", ranks, weights
            )
        )
    variants += [
        _Variant(
            Change.BALANCED_WORK,
            "work spread evenly over equal ranks, each step",
            (),
            edits.balanced_work,
        ),
        _Variant(Change.STEADY_WORK, "compute steady, at its median", (), edits.steady_work),
    ]
    return variants


def _of_stages(edits: Edits) -> list[_Variant]:
    named = (
        (Change.EVEN_STAGES, "an even split over the stages", edits.even_stages()),
        (Change.EVEN_MICRO_BATCHES, "micro-batches of equal length", edits.even_micro_batches()),
    )
    return [
        _Variant(change, label, (), as_is(weights))
        for change, label, weights in named
        if weights is not None
    ]


def _of_communication(edits: Edits) -> list[_Variant]:
    ops = edits.replay.ties.used_ops
    if not ops:
        return []
    variants = [
        _Variant(
            Change.STEADY_TRANSFERS,
            f"{op} steady, each at its median",
            (),
            partial(edits.steady_transfers, op),
        )
        for op in ops
    ]
    faster, told = edits.faster_link(_LINK_FACTOR)
    assumption = _SHARE_ASSUMED if told else _BYTES_ASSUMED
    variants.append(
        _Variant(
            Change.FASTER_LINK,
            f"a link {_LINK_FACTOR:g}x as fast",
            (),
            as_is(faster),
            assumption,
        )
    )
    variants.append(
        _Variant(
            Change.NO_TRANSFER_TIME,
            "transfers that take no time",
            (),
            partial(edits.without, EdgeKind.TRANSFER),
        )
    )
    variants += _of_buckets(edits)
    unsynchronized = edits.no_gradient_sync()
    if unsynchronized is not None:
        label = "gradients accumulated twice, per pass"
        variants.append(
            _Variant(Change.ACCUMULATION, label, (), as_is(unsynchronized), _OPTIMIZER_ASSUMED)
        )
    return variants


def _of_buckets(edits: Edits) -> list[_Variant]:
    variants: list[_Variant] = []
    before: Times | None = None
    for factor, label in _BUCKET_FACTORS:
        weights = edits.larger_buckets(factor * edits.buckets.largest_bytes)
        if weights is None or (before is not None and np.array_equal(weights, before)):
            continue
        before = weights
        variants.append(
            _Variant(Change.LARGER_BUCKETS, label, (), as_is(weights), _BUCKETS_ASSUMED)
        )
    return variants


def _of_parts(edits: Edits) -> list[_Variant]:
    named = (
        (EdgeKind.HOST_GAP, Change.NO_HOST_GAPS, "no host gaps"),
        (EdgeKind.INPUT, Change.NO_LOADER_WAIT, "no wait for the data loader"),
        (EdgeKind.PAUSE, Change.NO_PAUSES, "no garbage collection"),
    )
    spent = edits.replay.graph.edges.parts.sum(axis=0)
    told = [
        part
        for part, _, _ in named
        if spent[part] > 0 and not (part in _HOST_WORK and crowded_ranks(edits.replay))
    ]
    return [
        _Variant(change, label, (), partial(edits.without, part))
        for part, change, label in named
        if part in told
    ]


def crowded_ranks(replay: Replay) -> str:
    """The ranks of a host that has fewer CPUs than they have threads; empty where each thread has
    one, or where the recordings do not say. Each rank's own time is replayed, not who computed on
    which CPU."""
    hosts: dict[str | None, list[RankTrace]] = defaultdict(list)
    for rank in replay.ranks:
        hosts[rank.trace.host].append(rank.trace)
    for host, ranks in hosts.items():
        uses = [rank.cpu_use for rank in ranks if rank.cpu_use is not None]
        cpus = frozenset[int]().union(*(use.cpus for use in uses))
        # Where a device does the work, the host's other threads have little to do.
        threads = sum(
            use.threads if not rank.on_device else 1 for rank, use in zip(ranks, uses, strict=False)
        )
        if len(uses) == len(ranks) and 0 < len(cpus) < threads:
            where = "" if host is None else f" on {host}"
            return f"{len(ranks)} ranks{where} have {threads} threads and {len(cpus)} CPUs"
    return ""


def as_is(weights: Times) -> Weights:
    """Times that are there already."""
    return lambda: weights


def replayed_steps(replay: Replay, weights: Sequence[Weights]) -> list[float]:
    """Seconds of the step with each of several times of edges."""
    at_once = max(1, min(_AT_ONCE, _EDGES_AT_ONCE // max(1, len(replay.graph.edges))))
    steps: list[float] = []
    for first in range(0, len(weights), at_once):
        made = [make() for make in weights[first : first + at_once]]
        steps += replay.steps_of(np.stack(made, axis=1)).tolist()
    return steps
