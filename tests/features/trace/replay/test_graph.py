"""Graphs small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.features.trace.replay.graph import EdgeKind, GraphBuilder, ReplayError, only


def test_a_moment_follows_the_latest_of_its_sources() -> None:
    """Two ranks work for 10 and 30 ns and meet; the second variant takes 25 ns from the slower
    one."""
    builder = GraphBuilder()
    starts = [builder.moment(0), builder.moment(5)]
    arrivals = [builder.moment(10), builder.moment(35)]
    met, end = builder.moment(35), builder.moment(42)
    for rank, length in enumerate((10.0, 30.0)):
        builder.edge(starts[rank], arrivals[rank], only(EdgeKind.WORK, length), rank=rank)
        builder.edge(arrivals[rank], met)
    builder.edge(met, end, only(EdgeKind.TRANSFER, 7.0), tie=0)
    graph = builder.build()
    recorded = graph.edges.parts.sum(axis=1)
    faster = np.where((graph.edges.rank == 1), recorded - 25.0, recorded)
    alone = np.where(graph.edges.source == arrivals[1], -np.inf, recorded)
    times = graph.times(np.stack([recorded, faster, alone], axis=1))
    assert times[end].tolist() == [42.0, 17.0, 17.0]
    assert times[arrivals[1]].tolist() == [35.0, 10.0, 35.0]
    assert times[:, 0].tolist() == graph.recorded.tolist()


def test_moments_that_follow_each_other_in_a_circle_are_refused() -> None:
    builder = GraphBuilder()
    start, first, second = (builder.moment(0) for _ in range(3))
    for source, target in ((start, first), (first, second), (second, first)):
        builder.edge(source, target)
    graph = builder.build()
    with pytest.raises(ReplayError, match="in a circle"):
        graph.times(np.zeros((len(graph.edges), 1)))
