"""Tokens at experts and their time, noted over real passes."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.worker.models.test_experts import CHOSEN, EXPERTS, layer, tokens
from torchscale.worker.measure import experts as measured
from torchscale.worker.measure.clock import HostClock
from torchscale.worker.measure.experts import ExpertMeter, use_of_experts
from torchscale.worker.models.experts import ExpertLayer
from torchscale.worker.process_group import Ranks

ONE = Ranks(0, 0, 1, torch.device("cpu"), None)


class CountingClock:
    """Each mark is a second after the one before."""

    def __init__(self) -> None:
        self.marks = 0

    def mark(self) -> None:
        self.marks += 1

    def read(self) -> list[float]:
        found, self.marks = self.marks, 0
        return [float(number) for number in range(found)]


def train(meter: ExpertMeter, layers: list[ExpertLayer], samples: int, passes: int = 1) -> None:
    for number in range(passes):
        meter.begin_forward()
        x = tokens(samples + number).requires_grad_()
        for one in layers:
            x, _ = one(x)
        meter.end_forward()
        x.sum().backward()  # type: ignore[no-untyped-call]
    meter.end_step()


def test_tokens_of_each_step_and_of_all() -> None:
    layers = [layer(), layer()]
    meter = ExpertMeter(layers, HostClock())
    train(meter, layers, samples=1)
    train(meter, layers, samples=2, passes=2)
    batch = meter.read()
    assert [step.tokens for step in batch.steps] == [2 * 10 * CHOSEN, 2 * (20 + 30) * CHOSEN]
    assert batch.tokens.shape == (2, EXPERTS)
    assert batch.tokens.sum(dim=1).tolist() == [60 * CHOSEN] * 2
    for step in batch.steps:
        assert 0 < step.forward_seconds < step.seconds
        assert step.peak >= 1


def test_the_peak_is_the_hottest_expert_over_its_even_share() -> None:
    layers = [layer(), layer(skew=2.0)]
    meter = ExpertMeter(layers, HostClock())
    train(meter, layers, samples=2)
    assert meter.read().steps[0].peak == pytest.approx(2.0)


def test_each_run_of_experts_is_a_pair_of_marks() -> None:
    """Two layers: one second each in the forward pass, one each in the backward pass."""
    layers = [layer(), layer()]
    meter = ExpertMeter(layers, CountingClock())
    train(meter, layers, samples=1)
    (step,) = meter.read().steps
    assert (step.seconds, step.forward_seconds) == (4.0, 2.0)


def test_recomputed_experts_count_in_time_and_not_in_tokens() -> None:
    one = layer()
    meter = ExpertMeter([one], CountingClock())
    meter.begin_forward()
    out = checkpoint(lambda x: one(x)[0], tokens().requires_grad_(), use_reentrant=False)
    meter.end_forward()
    out.square().sum().backward()
    meter.end_step()
    (step,) = meter.read().steps
    assert (step.seconds, step.forward_seconds) == (3.0, 1.0)
    assert step.tokens == 30 * CHOSEN


def test_what_is_cleared_is_not_read() -> None:
    layers = [layer()]
    meter = ExpertMeter(layers, HostClock())
    train(meter, layers, samples=3)
    meter.clear()
    meter.clear()
    train(meter, layers, samples=1)
    assert [step.tokens for step in meter.read().steps] == [10 * CHOSEN]


def test_a_record_keeps_the_most_uneven_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [layer() for _ in range(3)]
    counted = torch.tensor([[5, 5, 5, 5], [2, 14, 2, 2], [8, 4, 4, 4]])
    whole = use_of_experts(layers, counted, 7, 2, ONE)
    assert (whole.experts, whole.chosen, whole.degree, whole.steps) == (EXPERTS, CHOSEN, 2, 7)
    assert whole.layers == (0, 1, 2)
    assert whole.tokens == tuple(map(tuple, counted.tolist()))
    monkeypatch.setattr(measured, "_MOST_COUNTS", 2 * EXPERTS)
    kept = use_of_experts(layers, counted, 7, 2, ONE)
    assert (kept.layers, kept.layer_count) == ((1, 2), 3)
    assert kept.tokens == ((2, 14, 2, 2), (8, 4, 4, 4))
