"""Micro-batches of pipelines of known schedules: 1F1B, and GPipe by the simulator of the replay's
tests."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.features.trace.readers.builders import kernel, kineto, read_rank, step
from tests.features.trace.replay.simulator import Training
from torchscale.config.choices import WindowChoice
from torchscale.features.trace.analysis.micro_batches import MicroBatches, find_micro_batches
from torchscale.features.trace.analysis.stages import find_stages
from torchscale.features.trace.analysis.windows import choose_window, rank_window
from torchscale.features.trace.span import Trace

COUNT = 6
STEPS = 12
FORWARD, BACKWARD, OPTIMIZER, TRANSFER = 100.0, 200.0, 40.0, 5.0
"""Microseconds."""

Lengths = Callable[[int, int, int], float]
"""(stage, step, micro-batch) → its work over that of one of usual length."""


def schedule(stage: int, stages: int) -> Iterator[tuple[bool, int]]:
    """Passes of a stage under 1F1B: (backward, micro-batch)."""
    warmup = min(COUNT, stages - stage)
    yield from ((False, number) for number in range(warmup))
    for number in range(COUNT):
        yield True, number
        if number + warmup < COUNT:
            yield False, number + warmup


class OneForwardOneBackward:
    """The recording of a pipeline of one copy."""

    def __init__(self, stages: int, lengths: Lengths) -> None:
        self.stages, self.lengths = stages, lengths
        self.events: list[list[dict[str, Any]]] = [[] for _ in range(stages)]
        self.now = [0.0] * stages
        for number in range(STEPS):
            self._step(number)

    def trace(self) -> Trace:
        texts = [kineto(events, rank, self.stages) for rank, events in enumerate(self.events)]
        ranks = (
            read_rank(io.BytesIO(text.encode()), f"rank{rank}.json")
            for rank, text in enumerate(texts)
        )
        return Trace(tuple(ranks), "torch.profiler")

    def _step(self, number: int) -> None:
        begins = list(self.now)
        sent: dict[tuple[int, bool, int], float] = {}
        queues = [list(schedule(stage, self.stages)) for stage in range(self.stages)]
        while any(queues):
            for stage, queue in enumerate(queues):
                while queue and self._ready(stage, *queue[0], sent):
                    self._pass(number, stage, *queue.pop(0), sent)
        for stage, events in enumerate(self.events):
            events.append(kernel("adam", self.now[stage], OPTIMIZER))
            self.now[stage] += OPTIMIZER
            events.append(step(number, begins[stage], self.now[stage] - begins[stage]))

    def _ready(
        self, stage: int, backward: bool, place: int, sent: dict[tuple[int, bool, int], float]
    ) -> bool:
        source = stage + 1 if backward else stage - 1
        return not 0 <= source < self.stages or (source, backward, place) in sent

    def _pass(
        self,
        number: int,
        stage: int,
        backward: bool,
        place: int,
        sent: dict[tuple[int, bool, int], float],
    ) -> None:
        source, target = (stage + 1, stage - 1) if backward else (stage - 1, stage + 1)
        if 0 <= source < self.stages:
            arrived = max(self.now[stage], sent[source, backward, place]) + TRANSFER
            self._message("recv", stage, source, arrived)
            self.now[stage] = arrived
        work = (BACKWARD if backward else FORWARD) * self.lengths(stage, number, place)
        self.events[stage].append(kernel("gemm", self.now[stage], work))
        self.now[stage] += work
        if 0 <= target < self.stages:
            sent[stage, backward, place] = self.now[stage]
            self._message("send", stage, target, self.now[stage] + TRANSFER)

    def _message(self, op: str, rank: int, partner: int, end: float) -> None:
        described: dict[str, Any] = {
            "Collective name": op,
            "Process Group Name": "pipe",
            "Process Group Ranks": str(list(range(self.stages))),
            "dtype": "Byte",
            "In msg nelems": 1024,
            "Dst Rank" if op == "send" else "Src Rank": partner,
        }
        start, stream = self.now[rank], 8 if op == "recv" else 9
        self.events[rank].append(
            kernel("ncclDevKernel_SendRecv", start, end - start, stream=stream, **described)
        )


def compared(trace: Trace) -> MicroBatches | None:
    kind, numbers, _ = choose_window(trace, WindowChoice.AUTO)
    ranks = [rank_window(rank, kind, numbers) for rank in trace.ranks]
    return find_micro_batches(ranks, find_stages(trace.ranks))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_lengths_of_1f1b_are_those_of_the_micro_batches(stages: int) -> None:
    lengths = np.array([1.0, 0.5, 2.0, 1.0, 1.5, 1.0])
    found = compared(
        OneForwardOneBackward(stages, lambda stage, number, place: float(lengths[place])).trace()
    )
    assert found is not None
    assert found.lengths.relative == pytest.approx(lengths / lengths.mean(), rel=0.01)
    assert found.lengths.longest == pytest.approx(2.0 / lengths.mean(), rel=0.01)
    assert found.lengths.shared_variance == pytest.approx(
        (lengths / lengths.mean()).var(), rel=0.05
    )
    assert found.lengths.seconds == pytest.approx(
        (FORWARD + BACKWARD) * lengths.mean() * 1e-6, rel=0.02
    )


@pytest.mark.parametrize("stages", [2, 4])
def test_what_one_stage_alone_shows_is_not_shared(stages: int) -> None:
    """Every stage is slow for other micro-batches than the others."""
    noise = np.random.default_rng(stages).normal(1.0, 0.2, (stages, STEPS, COUNT)).clip(0.3)
    found = compared(OneForwardOneBackward(stages, lambda *at: float(noise[at])).trace())
    assert found is not None
    assert abs(found.lengths.shared_variance.mean()) < 0.02


@pytest.mark.parametrize("stages", [2, 4])
def test_lengths_are_told_from_noise(stages: int) -> None:
    random = np.random.default_rng(stages)
    noise = random.normal(1.0, 0.1, (stages, STEPS, COUNT)).clip(0.5)
    long = random.normal(1.0, 0.4, (STEPS, COUNT)).clip(0.3)
    found = compared(
        OneForwardOneBackward(stages, lambda *at: float(noise[at] * long[at[1:]])).trace()
    )
    assert found is not None
    truth = (long / long.mean(axis=1, keepdims=True)).var(axis=1).mean()
    assert found.lengths.shared_variance.mean() == pytest.approx(truth, rel=0.3)


@pytest.mark.parametrize("stages", [2, 4])
def test_factors_make_the_passes_equal(stages: int) -> None:
    """Ranks that are slower as a whole stay so."""
    lengths = [1.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    training = Training(
        pipeline=stages,
        micro_batches=6,
        steps=9,
        speed=lambda rank, _: 1.0 + 0.3 * rank,
        micro_batch_work=lambda _, place: lengths[place],
    )
    found = compared(training.trace())
    assert found is not None
    for factors in found.factors[:-1]:
        assert factors[:6] == pytest.approx([8 / 6 / length for length in lengths], rel=0.01)


def test_pipelines_whose_micro_batches_cannot_be_told() -> None:
    assert compared(Training(data=2).trace()) is None
    assert compared(Training(pipeline=2, micro_batches=1).trace()) is None
