"""CPU ranks whose waits no profiler records, against simulations whose truth is known."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.features.trace.readers.builders import host, kineto, read_rank, step
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.span import Trace
from torchscale.schema.profiles.finding import CostBasis, FindingKind
from torchscale.schema.profiles.what_if import Change, WhatIf

TRANSFER = 2_000.0
COPY = 50.0
GAP = 10.0
"""Microseconds between two operators."""


@dataclass(frozen=True)
class GlooTraining:
    """Ranks that reduce two buckets by gloo: the first during the backward pass, the second after
    it.

    Attributes:
        forward: Microseconds of each rank's forward pass.
        backward: Of each half of the backward pass.
        data: For which each rank waits for data.
        host: Of Python after the optimizer.
        own_host: What of it each rank has beside that.
        clock: Microseconds by which the last rank's clock is ahead.
        cpus: That the ranks, of one thread each, may run on.
        late_marks: Whether the thread that marks the end of an operation runs after the one that
            waited for it.
    """

    forward: tuple[float, ...] = (10_000.0, 10_000.0)
    backward: float = 5_000.0
    data: tuple[float, ...] = (0.0, 0.0)
    host: float = 0.0
    own_host: tuple[float, ...] = (0.0,) * 8
    clock: float = 0.0
    late_marks: bool = False
    steps: int = 26
    cpus: tuple[int, ...] = (0, 1)

    def step_seconds(self) -> float:
        return self._run()[1] * 1e-6

    def what_if(self) -> WhatIf:
        """Of the recording, whose replay holds."""
        what_if = analyze_trace(self.trace()).what_if
        assert what_if is not None
        assert what_if.refused is None
        assert what_if.measured_step_seconds == pytest.approx(self.step_seconds(), rel=0.001)
        return what_if

    def trace(self) -> Trace:
        texts = [
            kineto([event | {"ts": event["ts"] + self.clock * (rank == len(self.forward) - 1)} for event in events],
                   rank, len(self.forward), backend="gloo", torchscale_cpu={"threads": 1, "cpus": self.cpus})
            for rank, events in enumerate(self._run()[0])
        ]  # fmt: skip
        ranks = (
            read_rank(io.BytesIO(text.encode()), f"rank{rank}.json")
            for rank, text in enumerate(texts)
        )
        return Trace(tuple(ranks), "torch.profiler")

    def _run(self) -> tuple[list[list[dict[str, Any]]], float]:
        marks = random.Random(7)
        ranks = range(len(self.forward))
        events: list[list[dict[str, Any]]] = [[] for _ in ranks]
        now = [0.0 for _ in ranks]
        lengths = []

        def work(rank: int, name: str, length: float, category: str = "cpu_op") -> None:
            events[rank].append(host(category, name, now[rank], length))
            now[rank] += length + GAP

        for number in range(self.steps):
            began = list(now)
            calls: list[list[float]] = [[], []]
            for rank in ranks:
                if self.data[rank]:
                    work(rank, "torchscale.data_wait", self.data[rank], "user_annotation")
                work(rank, "aten::linear", self.forward[rank])
                for bucket in calls:
                    work(rank, "aten::mm", self.backward)
                    events[rank].append(host("cpu_op", "c10d::allreduce_", now[rank], 5.0))
                    bucket.append(now[rank])
                    now[rank] += GAP
            free = 0.0
            for bucket in calls:
                begins = [max(time, free) for time in bucket]
                free = max(begins) + TRANSFER
                for rank, begin in enumerate(begins):
                    late = marks.choice((0.0, 3 * COPY)) if self.late_marks else 0.0
                    events[rank].append(
                        host(
                            "user_annotation",
                            "gloo:all_reduce",
                            begin,
                            free + late - begin,
                            thread=2,
                        )
                    )
                for rank in ranks:
                    now[rank] = max(now[rank], free) + GAP
                    work(rank, "torch.distributed.ddp.reducer::copy_bucket_to_grad", COPY)
            for rank in ranks:
                work(rank, "aten::add_", COPY)
                now[rank] += self.host + self.own_host[rank]
                events[rank].append(step(number, began[rank], now[rank] - began[rank]))
            lengths.append(max(end - begin for begin, end in zip(began, now, strict=True)))
        return events, sum(lengths[1:]) / (self.steps - 1)


def seconds(what_if: WhatIf, change: Change, ranks: tuple[int, ...] = ()) -> float:
    return next(
        row.step_seconds for row in what_if.rows if row.change is change and row.ranks == ranks
    )


@pytest.mark.parametrize("late_marks", [False, True])
@pytest.mark.parametrize("slow", [11_000.0, 14_000.0, 30_000.0])
def test_a_straggler_that_others_wait_for(slow: float, late_marks: bool) -> None:
    training = GlooTraining((10_000.0, slow, 10_000.0), data=(0.0,) * 3, late_marks=late_marks)
    truth = replace(training, forward=(10_000.0,) * 3).step_seconds()
    assert seconds(training.what_if(), Change.RANK_LIKE_PEERS, (1,)) == pytest.approx(
        truth, rel=0.005
    )


def test_the_cost_of_a_straggler_is_what_its_absence_gives() -> None:
    training = GlooTraining((10_000.0, 14_000.0))
    findings = analyze_trace(training.trace()).findings
    straggler = next(finding for finding in findings if finding.kind is FindingKind.STRAGGLER)
    gained = training.step_seconds() - GlooTraining().step_seconds()
    assert (straggler.rank, straggler.cost_basis) == (1, CostBasis.REPLAY)
    assert straggler.cost_seconds == pytest.approx(gained, rel=0.01)


def test_host_code_of_one_rank_costs_once_and_is_a_stragglers() -> None:
    """Of 6 ms of Python on each rank and 9 ms more on one, 9 are its own fault and 6 everyone's."""
    training = GlooTraining(host=6_000.0, own_host=(0.0, 9_000.0))
    found = {finding.kind: finding for finding in analyze_trace(training.trace()).findings}
    straggler, shared = found[FindingKind.STRAGGLER], found[FindingKind.HOST_BOUND]
    assert straggler.cost_seconds == pytest.approx(9e-3, rel=0.02)
    assert shared.cost_seconds == pytest.approx(6e-3, rel=0.02)
    assert shared.cost_basis is CostBasis.REPLAY
    assert (
        "its host code between operators takes 15.0 ms a step, the others' 6.0" in straggler.summary
    )
    assert "clocks" not in straggler.advice


def test_host_gaps_and_the_loader() -> None:
    healthy = GlooTraining().step_seconds()
    gaps = GlooTraining(host=3_000.0).what_if()
    assert seconds(gaps, Change.NO_HOST_GAPS) == pytest.approx(healthy, rel=0.001)
    loader = GlooTraining(data=(4_000.0, 4_000.0)).what_if()
    assert seconds(loader, Change.NO_LOADER_WAIT) == pytest.approx(healthy, rel=0.001)
    one = GlooTraining(data=(100.0, 4_000.0)).what_if()
    usual = GlooTraining(data=(100.0, 100.0)).step_seconds()
    assert seconds(one, Change.RANK_LIKE_PEERS, (1,)) == pytest.approx(usual, rel=0.001)


@pytest.mark.parametrize(
    ("ranks", "cpus", "told"), [(2, (0, 1), True), (3, (0, 1), False), (3, (0, 1, 5), True)]
)
def test_host_gaps_of_ranks_that_share_cpus_are_not_predicted(
    ranks: int, cpus: tuple[int, ...], told: bool
) -> None:
    what_if = GlooTraining(
        (10_000.0,) * ranks, data=(2_000.0,) * ranks, host=3_000.0, cpus=cpus
    ).what_if()
    changes = {row.change for row in what_if.rows}
    assert (Change.NO_HOST_GAPS in changes) == told
    assert Change.NO_LOADER_WAIT in changes
    reason = "3 ranks on node-1 have 3 threads and 2 CPUs"
    assert any(reason in note for note in what_if.notes) != told


def test_a_transfer_that_the_backward_pass_hides_costs_nothing() -> None:
    """The first bucket's; of the second all is exposed that the copy of the first does not hide."""
    training = GlooTraining()
    gained = training.step_seconds() - seconds(training.what_if(), Change.NO_TRANSFER_TIME)
    assert gained == pytest.approx((TRANSFER - COPY - 2 * GAP) * 1e-6, rel=0.001)


def test_a_rank_of_equal_speed_has_nothing_to_gain() -> None:
    what_if = GlooTraining().what_if()
    assert all(
        abs(row.gain_percent) < 0.1 for row in what_if.rows if row.change is Change.RANK_LIKE_PEERS
    )
    assert all(row.gain_percent < 0.1 for row in what_if.rows if row.change is Change.BALANCED_WORK)


def test_a_replay_that_misses_what_was_measured_predicts_nothing() -> None:
    """Ranks of one host share a clock. Were it not so, ranks would wait for what the others had
    done before."""
    what_if = analyze_trace(GlooTraining(clock=9_000.0, steps=4).trace()).what_if
    assert what_if is not None
    assert what_if.rows == ()
    assert what_if.refused is not None
    assert "were measured" in what_if.refused
    assert "at most 5 %" in what_if.refused
