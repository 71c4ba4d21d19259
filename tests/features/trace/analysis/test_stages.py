"""Recordings of pipelines, worked out from a schedule: which ranks hold equal work, who is slow,
which stage has more."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.features.trace.readers.builders import BASE_NS, host, kernel, kineto, read_rank, step
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.analysis.stages import find_stages
from torchscale.features.trace.span import Trace
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import FindingKind

MICRO_BATCHES = 4
FORWARD = 100.0
"""Microseconds of a micro-batch; the backward pass takes twice as long."""
TRANSFER = 5.0


@dataclass
class Pipeline:
    """``stages`` × ``copies`` ranks, numbered stage by stage, that run GPipe's schedule.

    ``slow`` maps ranks to how much longer they compute, ``work`` stages to how much more they hold.
    ``describe`` gives the arguments of a communication kernel: (rank, operation, its group's name,
    the group's ranks, the partner).
    """

    stages: int
    copies: int
    describe: Callable[..., dict[str, Any]]
    slow: Mapping[int, float] = field(default_factory=dict)
    work: Mapping[int, float] = field(default_factory=dict)
    steps: int = 25
    marks: bool = True
    events: list[list[dict[str, Any]]] = field(default_factory=list)

    def trace(self, **header: Any) -> Trace:
        """The recorded ranks."""
        ranks = self.stages * self.copies
        self.events = [[] for _ in range(ranks)]
        now = [0.0] * ranks
        for number in range(self.steps):
            begins = list(now)
            self._step(now)
            for events, begin, end in zip(self.events, begins, now, strict=True):
                if self.marks:
                    events.append(step(number, begin, end - begin))
        return Trace(
            tuple(
                read_rank(
                    io.BytesIO(kineto(events, rank, ranks, **header).encode()), f"rank{rank}.json"
                )
                for rank, events in enumerate(self.events)
            ),
            "torch.profiler",
        )

    def _step(self, now: list[float]) -> None:
        for backward in (False, True):
            order = range(self.stages)[::-1] if backward else range(self.stages)
            for stage in order:
                for copy in range(self.copies):
                    self._passes(now, stage, copy, backward=backward)
        for stage in range(self.stages):
            self._reduce(now, [stage * self.copies + copy for copy in range(self.copies)])
        now[:] = [time + 20.0 for time in now]

    def _passes(self, now: list[float], stage: int, copy: int, *, backward: bool) -> None:
        rank = stage * self.copies + copy
        before, after = (stage + 1, stage - 1) if backward else (stage - 1, stage + 1)
        length = (
            FORWARD * (2 if backward else 1) * self.slow.get(rank, 1.0) * self.work.get(stage, 1.0)
        )
        for micro_batch in range(MICRO_BATCHES):
            if 0 <= before < self.stages:
                source = before * self.copies + copy
                arrived = max(now[rank], self._sent[source, backward, micro_batch]) + TRANSFER
                self._talk(rank, "recv", now[rank], arrived, copy, source)
                now[rank] = arrived
            self.events[rank].append(kernel("gemm", now[rank], length))
            now[rank] += length
            self._sent[rank, backward, micro_batch] = now[rank]
            if 0 <= after < self.stages:
                self._talk(
                    rank, "send", now[rank], now[rank] + TRANSFER, copy, after * self.copies + copy
                )

    def _talk(self, rank: int, op: str, start: float, end: float, copy: int, partner: int) -> None:
        chain = [stage * self.copies + copy for stage in range(self.stages)]
        arguments = self.describe(rank, op, f"pipe{copy}", chain, partner)
        self.events[rank].append(
            kernel("ncclDevKernel_SendRecv", start, end - start, stream=9, **arguments)
        )

    def _reduce(self, now: list[float], ranks: list[int]) -> None:
        if len(ranks) < 2:
            return
        end = max(now[rank] for rank in ranks) + 50.0
        for rank in ranks:
            arguments = self.describe(rank, "allreduce", f"data{ranks[0]}", ranks, None)
            name = "ncclDevKernel_AllReduce_Sum_f32"
            self.events[rank].append(
                kernel(name, now[rank], end - now[rank], stream=10, **arguments)
            )
            now[rank] = end

    def __post_init__(self) -> None:
        self._sent: dict[tuple[int, bool, int], float] = {}


def everything(
    rank: int, op: str, group: str, ranks: list[int], partner: int | None
) -> dict[str, Any]:
    """As recent versions of PyTorch describe NCCL's kernels."""
    del rank
    described: dict[str, Any] = {
        "Collective name": op,
        "Process Group Name": group,
        "Process Group Ranks": str(ranks),
    }
    if partner is not None:
        described["Dst Rank" if op == "send" else "Src Rank"] = partner
    return described


def names(rank: int, op: str, group: str, ranks: list[int], partner: int | None) -> dict[str, Any]:
    """Names of groups alone, and sends and receives in one kernel."""
    del rank, ranks, partner
    return {
        "Collective name": "coalesced" if op != "allreduce" else op,
        "Process Group Name": group,
    }


def one_name(
    rank: int, op: str, group: str, ranks: list[int], partner: int | None
) -> dict[str, Any]:
    """Groups along one dimension of a mesh that share a name; their ranks tell them apart."""
    return everything(rank, op, group.rstrip("0123456789"), ranks, partner)


def nothing(
    rank: int, op: str, group: str, ranks: list[int], partner: int | None
) -> dict[str, Any]:
    """Names of kernels alone, as in older traces."""
    del rank, op, group, ranks, partner
    return {}


def kinds(analysis: ProfileAnalysis) -> dict[FindingKind, int | None]:
    about = (
        FindingKind.STRAGGLER,
        FindingKind.INTERMITTENT_STRAGGLER,
        FindingKind.UNEVEN_STAGES,
        FindingKind.PAUSES,
    )
    return {finding.kind: finding.rank for finding in analysis.findings if finding.kind in about}


def expected_stages(stages: int, copies: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(stage * copies, (stage + 1) * copies)) for stage in range(stages))


@pytest.mark.parametrize(("stages", "copies"), [(2, 2), (4, 4), (3, 2), (2, 4)])
@pytest.mark.parametrize("describe", [everything, names, one_name, nothing])
def test_the_ranks_of_each_stage(
    stages: int, copies: int, describe: Callable[..., dict[str, Any]]
) -> None:
    uneven = {stage: 1 + stage / 10 for stage in range(stages)}
    layout = find_stages(Pipeline(stages, copies, describe, work=uneven).trace().ranks)
    assert layout.stages is not None
    if describe in (everything, one_name):
        assert layout.stages == expected_stages(stages, copies)
    assert sorted(layout.stages) == list(expected_stages(stages, copies))


@pytest.mark.parametrize("describe", [everything, names, one_name])
@pytest.mark.parametrize(
    ("stages", "copies", "rank"),
    [(4, 4, 6), (4, 4, 0), (4, 4, 15), (2, 2, 1), (2, 2, 2), (3, 2, 3)],
)
def test_a_slow_worker_is_named_among_its_peers(
    describe: Callable[..., dict[str, Any]], stages: int, copies: int, rank: int
) -> None:
    analysis = analyze_trace(Pipeline(stages, copies, describe, slow={rank: 2.4}).trace())
    assert kinds(analysis) == {FindingKind.STRAGGLER: rank}
    finding = next(item for item in analysis.findings if item.kind is FindingKind.STRAGGLER)
    assert finding.cost_seconds == pytest.approx(1.4 * 3 * FORWARD * MICRO_BATCHES * 1e-6, rel=0.01)
    assert "2.4 times" in finding.summary


def test_a_slow_worker_is_named_without_steps_and_between_hosts() -> None:
    """Compute is compared without clocks; a recording without marked steps makes the finding less
    sure."""
    recorded = Pipeline(4, 4, everything, slow={9: 2.4}, marks=False)
    without_steps = recorded.trace()
    shifted = [
        kineto(
            events,
            rank,
            16,
            host_name=f"node-{rank % 2}",
            baseTimeNanoseconds=BASE_NS + rank * 10**9,
        )
        for rank, events in enumerate(recorded.events)
    ]
    ranks = tuple(
        read_rank(io.BytesIO(content.encode()), f"rank{rank}.json")
        for rank, content in enumerate(shifted)
    )
    for trace in (without_steps, Trace(ranks, "torch.profiler")):
        assert kinds(analyze_trace(trace)) == {FindingKind.STRAGGLER: 9}


@pytest.mark.parametrize("describe", [everything, names, one_name])
@pytest.mark.parametrize(("stages", "copies"), [(4, 4), (2, 2)])
def test_even_stages_and_equal_peers_name_nobody(
    describe: Callable[..., dict[str, Any]], stages: int, copies: int
) -> None:
    assert kinds(analyze_trace(Pipeline(stages, copies, describe).trace())) == {}


@pytest.mark.parametrize(("stages", "copies"), [(4, 4), (2, 2), (4, 1)])
def test_a_last_stage_with_more_work(stages: int, copies: int) -> None:
    analysis = analyze_trace(Pipeline(stages, copies, everything, work={stages - 1: 1.6}).trace())
    assert kinds(analysis) == {FindingKind.UNEVEN_STAGES: None if copies > 1 else stages - 1}
    finding = next(item for item in analysis.findings if item.kind is FindingKind.UNEVEN_STAGES)
    assert f"stage {stages} of {stages}" in finding.summary
    share = 1.6 / (stages + 0.6)
    assert f"{share * 100:.0f} % of the work" in finding.summary


def test_different_numbers_of_sends_do_not_stop_the_comparison_of_collectives() -> None:
    """The first and the last stage send half as often as those between them."""
    analysis = analyze_trace(Pipeline(4, 2, nothing).trace())
    assert not any("different numbers" in reason for reason in analysis.window.reasons)
    assert analysis.sync_stall_percent is not None
    reduced = next(item for item in analysis.collectives if item.op == "all_reduce")
    assert reduced.count == 24 * 4


def test_sends_are_paired_with_their_receives() -> None:
    analysis = analyze_trace(Pipeline(3, 1, everything).trace())
    sent = [item for item in analysis.collectives if item.op == "send_recv"]
    assert sum(item.count for item in sent) == 24 * MICRO_BATCHES * 4
    assert analysis.sync_stall_percent is not None and analysis.sync_stall_percent > 0


def test_where_nothing_tells_who_belongs_together_the_reason_is_given() -> None:
    analysis = analyze_trace(Pipeline(4, 1, nothing, slow={2: 2.4}).trace())
    assert kinds(analysis) == {}
    reason = next(
        item.reason for item in analysis.abstentions if item.kind is FindingKind.STRAGGLER
    )
    assert "neither to which rank each send goes nor which ranks form a process group" in reason


def gloo(stages: int, copies: int, slow: dict[int, float]) -> Trace:
    """The same schedule on CPUs: calls with the partner's place in the pipeline's group, and
    annotations of their ends."""
    made = Pipeline(stages, copies, everything, slow=slow)
    made.trace()
    ranks = []
    for events in made.events:
        called = []
        for event in events:
            arguments, start, length = event["args"], 10 * event["ts"], 10 * event["dur"]
            op = arguments.get("Collective name")
            if event["cat"] != "kernel":
                called.append({**event, "ts": start, "dur": length})
            elif op is None:
                called.append(host("cpu_op", "aten::mm", start, length))
            else:
                partner = arguments.get("Dst Rank", arguments.get("Src Rank", 0)) // copies
                name = {
                    "send": "c10d::send",
                    "recv": "c10d::recv_",
                    "allreduce": "c10d::allreduce_",
                }[op]
                call = host("cpu_op", name, start, 2.0)
                call["args"] = {"Concrete Inputs": ["", "", str(partner), "0"]}
                called.append(call)
                ended = {"send": "gloo:send", "recv": "gloo:recv", "allreduce": "gloo:all_reduce"}[
                    op
                ]
                called.append(host("user_annotation", ended, start + 1, length - 1, thread=2))
        ranks.append(called)
    return Trace(
        tuple(
            read_rank(
                io.BytesIO(kineto(events, rank, len(ranks), backend="gloo").encode()),
                f"rank{rank}.json",
            )
            for rank, events in enumerate(ranks)
        ),
        "torch.profiler",
    )


@pytest.mark.parametrize(("stages", "copies"), [(2, 2), (4, 2), (4, 1), (3, 1)])
def test_partners_by_their_place_in_a_group(stages: int, copies: int) -> None:
    layout = find_stages(gloo(stages, copies, {}).ranks)
    assert layout.stages == expected_stages(stages, copies)


def test_a_slow_rank_of_a_pipeline_on_cpus() -> None:
    for rank in range(4):
        assert kinds(analyze_trace(gloo(2, 2, {rank: 2.0}))) == {FindingKind.STRAGGLER: rank}
    assert kinds(analyze_trace(gloo(2, 2, {}))) == {}


def test_groups_of_a_mesh_are_joined_and_those_across_stages_left_out() -> None:
    """Two stages of two copies of two tensor-parallel ranks: groups of both kinds have two ranks,
    and so has the group that reduces the norm of gradients over the stages, which contains the
    partners of sends."""
    ranks = 8
    groups: dict[str, list[tuple[int, ...]]] = {
        "tensor": [(0, 1), (2, 3), (4, 5), (6, 7)],
        "data": [(0, 2), (1, 3), (4, 6), (5, 7)],
        "pipe": [(0, 4), (1, 5), (2, 6), (3, 7)],
        "norm": [(0, 1, 4, 5), (2, 3, 6, 7)],
        "embedding": [(0, 6)],
        "all": [tuple(range(8))],
    }
    events: list[list[dict[str, Any]]] = [[step(0, 0.0, 1000.0)] for _ in range(ranks)]
    for place, (kind, members) in enumerate(groups.items()):
        for number, group in enumerate(members):
            for rank in group:
                described = names(
                    rank, "send" if kind == "pipe" else "allreduce", f"{kind}{number}", [], None
                )
                kind_name = (
                    "ncclDevKernel_SendRecv"
                    if kind == "pipe"
                    else "ncclDevKernel_AllReduce_Sum_f32"
                )
                events[rank].append(kernel(kind_name, 100.0 * place, 10.0, stream=9, **described))
    traces = [
        read_rank(io.BytesIO(kineto(own, rank, ranks).encode()), f"rank{rank}.json")
        for rank, own in enumerate(events)
    ]
    assert find_stages(traces).stages == ((0, 1, 2, 3), (4, 5, 6, 7))
