"""Does a sample of the ranks of a recording say what all of them say? 40 simulated causes.

::

    python benchmarks/recording_sample.py                       # 32 of 1,024 ranks
    python benchmarks/recording_sample.py --ranks 256 --sample 16

Each recording is worked out from a schedule: data-parallel ranks on nodes of eight, 24 steps with a
gradient all-reduce each, on devices, with scatter of 1 % in what each step computes. One thing is
wrong in each: a rank or a node that is slow, slow now and then, waits for data, or waits that all
ranks have (data, host, transfers); some have nothing wrong. A sample agrees where it names the same
causes and the same ranks, or another of several ranks that are equally slow (told apart); where
it names fewer, and says of each that it lacks that it cannot tell, it abstains. Anything else is
wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.columns import (
    CollectiveRow,
    StepRow,
    make_collectives,
    make_steps,
)
from torchscale.features.trace.readers.selection import choose_ranks, groups_and_nodes
from torchscale.features.trace.span import RankTrace, SpanKind, Spans, Trace
from torchscale.schema.profiles.analysis import ProfileAnalysis

STEPS, NODE = 24, 8
BASE_NS = 1_700_000_000_000_000_000
COMPUTE_NS, TRANSFER_NS, KERNELS = 10_000_000, 300_000, 8
NAMED = ("straggler", "straggling_node", "intermittent_straggler")
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Cause:
    """What is wrong: own compute, waits for data and host gaps by rank and step, and transfer;
    ``rows`` are ranks that are slow in all steps."""

    name: str
    compute: Callable[[Matrix], Matrix] = lambda compute: compute
    data: Callable[[Matrix], Matrix] = lambda data: data
    gap: float = 0.0
    transfer: float = 1.0
    rows: range = range(0)


def causes(ranks: int) -> Iterator[Cause]:
    """Forty."""
    chance = np.random.default_rng(7)

    def slow(
        rows: int | slice, factor: float, steps: slice = slice(None)
    ) -> Callable[[Matrix], Matrix]:
        def change(values: Matrix) -> Matrix:
            changed: Matrix = values.copy()
            changed[rows, steps] *= factor
            return changed

        return change

    def late(rows: int | slice, share: float) -> Callable[[Matrix], Matrix]:
        def change(values: Matrix) -> Matrix:
            changed: Matrix = values.copy()
            changed[rows] += share * COMPUTE_NS
            return changed

        return change

    for number in range(12):
        rank = int(chance.integers(ranks))
        factor = (1.1, 1.3, 2.0)[number % 3]
        yield Cause(f"rank {rank} x {factor}", slow(rank, factor), rows=range(rank, rank + 1))
    for number in range(8):
        node = int(chance.integers(ranks // NODE)) * NODE
        factor = (1.1, 1.5)[number % 2]
        change = slow(slice(node, node + NODE), factor)
        yield Cause(f"node of rank {node} x {factor}", change, rows=range(node, node + NODE))
    for _ in range(4):
        rank = int(chance.integers(ranks))
        yield Cause(f"rank {rank} x 2 now and then", slow(rank, 2.0, slice(3, None, 9)))
    for number in range(4):
        rank = int(chance.integers(ranks))
        yield Cause(f"rank {rank} waits for data", data=late(rank, 0.2 + 0.2 * number))
    for share in (0.1, 0.3, 0.6):
        yield Cause(f"all wait for data, {share:.0%}", data=late(slice(None), share))
    for gap in (0.1, 0.3):
        yield Cause(f"host gaps, {gap:.0%}", gap=gap)
    for factor in (5.0, 20.0, 40.0):
        yield Cause(f"transfers x {factor:g}", transfer=factor)
    for number in range(4):
        yield Cause(f"nothing {number}")


def recorded(cause: Cause, ranks: int, seed: int) -> Trace:
    """The recording of all ranks."""
    chance = np.random.default_rng(seed)
    compute = cause.compute(COMPUTE_NS * (1 + 0.01 * chance.standard_normal((ranks, STEPS))))
    data = cause.data(np.zeros((ranks, STEPS)))
    gap = cause.gap * COMPUTE_NS
    begin, starts, arrivals, ends = 0.0, [], [], []
    for number in range(STEPS):
        arrived = begin + data[:, number] + gap + compute[:, number]
        end = float(arrived.max()) + TRANSFER_NS * cause.transfer
        starts.append(begin)
        arrivals.append(arrived)
        ends.append(end)
        begin = end
    return Trace(
        tuple(
            _rank(
                rank,
                ranks,
                np.array(starts),
                np.array(arrivals)[:, rank],
                np.array(ends),
                data[rank],
                gap,
            )
            for rank in range(ranks)
        ),
        "torch.profiler",
    )


def _rank(
    rank: int, ranks: int, starts: Matrix, arrived: Matrix, ends: Matrix, data: Matrix, gap: float
) -> RankTrace:
    begins = starts + data + gap
    edges = np.linspace(begins, arrived, KERNELS + 1)
    kernels = (edges[:-1].T.ravel(), edges[1:].T.ravel())
    count = kernels[0].size
    calls = np.repeat(starts + data + gap - 5_000, KERNELS)
    waits = data > 0
    parts = (
        (*kernels, SpanKind.COMPUTE, np.arange(1, count + 1)),
        (calls, calls + 2_000, SpanKind.LAUNCH, np.arange(1, count + 1)),
        (starts[waits], (starts + data)[waits], SpanKind.INPUT, np.zeros(int(waits.sum()))),
    )
    start, end, kind, link = (
        np.concatenate([np.broadcast_to(part[place], part[0].shape) for part in parts])
        for place in range(4)
    )
    zeros = np.zeros(len(start), dtype=np.int64)
    spans = Spans(
        start=BASE_NS + start.astype(np.int64),
        end=BASE_NS + end.astype(np.int64),
        kind=kind.astype(np.int8),
        name=zeros.astype(np.int32),
        lane=zeros,
        link=link.astype(np.int64),
        detail=zeros.astype(np.int8),
        size=zeros,
    )
    rows = [
        CollectiveRow(
            BASE_NS + int(one), BASE_NS + int(other), "all_reduce", "", 1 << 24, -1, 9, queue=9
        )
        for one, other in zip(arrived, ends, strict=True)
    ]
    steps = [
        StepRow(BASE_NS + int(one), BASE_NS + int(other), number)
        for number, (one, other) in enumerate(zip(starts, ends, strict=True))
    ]
    return RankTrace(
        rank=rank,
        host=f"node{rank // NODE}",
        pid=1,
        on_device=True,
        backend="nccl",
        world_size=ranks,
        source=f"rank{rank}",
        names=("gemm",),
        spans=spans,
        collectives=make_collectives(rows),
        steps=make_steps(steps),
    )


def verdict(analysis: ProfileAnalysis) -> set[tuple[str, int | None]]:
    """Causes, and the ranks that they name."""
    return {(finding.kind.value, finding.rank) for finding in analysis.findings}


def main() -> None:
    """Compare the two for each cause."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--sample", type=int, default=32)
    arguments = parser.parse_args()
    nodes = (frozenset(range(first, first + NODE)) for first in range(0, arguments.ranks, NODE))
    strata = groups_and_nodes((), nodes)
    counts: Counter[str] = Counter()
    for number, cause in enumerate(causes(arguments.ranks)):
        trace = recorded(cause, arguments.ranks, number)
        choice = choose_ranks(range(arguments.ranks), strata, None, arguments.sample)
        part = replace(
            trace,
            ranks=tuple(trace.ranks[rank] for rank in choice.ranks),
            absent=choice.absent,
        )
        whole, sampled = analyze_trace(trace), analyze_trace(part)
        outcome = _outcome(whole, sampled, cause.rows)
        counts[outcome] += 1
        print(
            f"{cause.name}: {outcome}; all ranks: {_shown(verdict(whole))}; "
            f"sample: {_shown(verdict(sampled))}",
            flush=True,
        )
    print(", ".join(f"{outcome}: {count}" for outcome, count in counts.most_common()))


def _outcome(whole: ProfileAnalysis, sampled: ProfileAnalysis, slow: range) -> str:
    """How a sample compares with the whole; ``slow`` are the ranks that are made slow."""
    all_causes, found = verdict(whole), verdict(sampled)
    untold = {item.kind.value for item in sampled.abstentions}
    missing, more = all_causes - found, found - all_causes
    outcome = "agrees"
    if more and {kind for kind, _ in more} <= {kind for kind, _ in missing}:
        if not all(rank in slow for _, rank in more):
            return "is wrong"
        missing = {(kind, rank) for kind, rank in missing if kind not in dict(more)}
        outcome = "names another of the slow ranks"
    elif more and all(rank in slow for _, rank in more):
        return "names a slow rank where all ranks name none"
    elif more:
        return "is wrong"
    if not missing:
        return outcome
    if not all(kind in untold for kind, _ in missing):
        return "misses it without a word"
    if not found:
        return "abstains"
    return f"{outcome}, abstains from the rest"


def _shown(found: set[tuple[str, int | None]]) -> str:
    names = (kind if rank is None else f"{kind} {rank}" for kind, rank in sorted(found, key=str))
    return ", ".join(names) or "nothing"


if __name__ == "__main__":
    main()
