"""Steps of optimizers, whatever steps within them."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.optim import optimizer as optimizers

from torchscale.worker.watch.marks import OPTIMIZER, STEP, Marks, moment
from torchscale.worker.watch.optimizers import Optimizers


class Steps:
    """Moments of optimizers, and the steps that were told."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.marks.start()
        self.told: list[int] = []

    @property
    def kinds(self) -> list[int]:
        return [moment(mark)[0] for mark in self.marks.take()]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(optimizers, name, OrderedDict())
    monkeypatch.setattr(torch.amp.GradScaler, "step", torch.amp.GradScaler.step)
    found = Steps()
    Optimizers(found.marks, found.told.append).watch()
    return found


def _optimizer() -> torch.optim.SGD:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.1)


def _raise(error: BaseException) -> Callable[[], float]:
    def closure() -> float:
        raise error

    return closure


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), KeyboardInterrupt(), SystemExit(1)], ids=repr
)
def test_a_step_that_raises_is_none_and_hides_no_other(steps: Steps, error: BaseException) -> None:
    first, second = _optimizer(), _optimizer()
    for optimizer in (first, second, first):
        with pytest.raises(type(error)):
            optimizer.step(_raise(error))
        optimizer.step()

    assert steps.told == [0, 1, 0]
    assert steps.kinds == [OPTIMIZER, OPTIMIZER, STEP] * 3


def test_an_optimizer_within_another_is_a_part_of_it(steps: Steps) -> None:
    inner = _optimizer()

    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            inner.step()
            super().step(closure)

    parameter = torch.nn.Parameter(torch.ones(1))
    Outer([parameter], lr=0.1).step()
    assert steps.told == [0]
    assert steps.kinds == [OPTIMIZER, STEP]


def test_an_inner_step_that_raises_hides_no_other(steps: Steps) -> None:
    inner = _optimizer()

    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            with pytest.raises(ValueError, match="inner"):
                inner.step(_raise(ValueError("inner")))

    Outer([torch.nn.Parameter(torch.ones(1))], lr=0.1).step()
    inner.step()
    assert steps.told == [0, 1]


def test_many_optimizers_take_no_memory(steps: Steps) -> None:
    for _ in range(50):
        _optimizer().step()
    assert max(steps.told) <= 7


def test_what_fails_after_a_step_is_kept_from_the_program(steps: Steps) -> None:
    Optimizers(Marks(), lambda _: 1 // 0).watch()  # type: ignore[arg-type]
    _optimizer().step()
    assert steps.told == [0]


def _scaled(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, grad: float) -> None:
    """A step whose gradient, before it is scaled, is this one."""
    (parameter,) = optimizer.param_groups[0]["params"]
    scaler.scale((parameter * grad).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def test_a_step_that_the_gradient_scaler_leaves_out_is_an_iteration(steps: Steps) -> None:
    optimizer, scaler = _optimizer(), torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    for grad in (1.0, float("inf"), 1.0):
        _scaled(optimizer, scaler, grad)

    assert steps.told == [0, 0, 0]
    assert steps.kinds == [OPTIMIZER, STEP] * 3


def test_a_scaled_optimizer_is_the_one_that_steps_without_it(steps: Steps) -> None:
    first, second = _optimizer(), _optimizer()
    for optimizer in (first, second):
        optimizer.step()
        optimizer.zero_grad()
    scaler = torch.amp.GradScaler("cpu")
    _scaled(second, scaler, 1.0)
    torch.amp.GradScaler("cpu", enabled=False).step(optimizer=first)

    assert steps.told == [0, 1, 1, 0]


def test_a_call_without_an_optimizer_fails_as_ever(steps: Steps) -> None:
    with pytest.raises(TypeError, match="optimizer"):
        torch.amp.GradScaler("cpu").step()  # type: ignore[call-arg]
    assert steps.told == []


@pytest.mark.parametrize(
    ("module", "owner", "method"),
    [
        ("deepspeed.runtime.engine", "DeepSpeedEngine", "_take_model_step"),
        ("megatron.core.optimizer.optimizer", "ChainedOptimizer", "step"),
        ("megatron.core.optimizer.optimizer", "MixedPrecisionOptimizer", "step"),
        ("megatron.core.optimizer.optimizer", "FP32Optimizer", "step"),
        ("megatron.core.optimizer.layer_wise_optimizer", "LayerWiseDistributedOptimizer", "step"),
    ],
)
def test_a_framework_s_step_is_one_whatever_steps_within_it(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, module: str, owner: str, method: str
) -> None:
    """Two parts, none (a gradient is infinite, or another process steps), and an error."""

    def step(self: Any, parts: int, error: Exception | None = None) -> int:
        for part in self.parts[:parts]:
            part.step()
        if error is not None:
            raise error
        return parts

    framework = ModuleType(module)
    made = type(owner, (), {method: step})
    setattr(framework, owner, made)
    monkeypatch.setitem(sys.modules, module, framework)
    Optimizers(steps.marks, steps.told.append).watch()
    steps.told.clear()
    engine, other = made(), made()
    engine.parts = other.parts = (_optimizer(), _optimizer())

    results = [getattr(engine, method)(parts) for parts in (2, 0, 1)]
    with pytest.raises(ValueError, match="full"):
        getattr(engine, method)(2, ValueError("full"))
    getattr(other, method)(2)

    assert results == [2, 0, 1]
    assert steps.told == [0, 0, 0, 1]
