"""What is noted around functions of torch, whatever they do."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import optimizer as optimizers

from torchscale.worker.watch import hooks
from torchscale.worker.watch.marks import OPTIMIZER, STEP, Marks, moment


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
    found = Steps()
    hooks.watch_optimizers(found.marks, found.told.append)
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
    hooks.watch_optimizers(Marks(), lambda _: 1 // 0)  # type: ignore[arg-type]
    _optimizer().step()
    assert steps.told == [0]


@pytest.mark.parametrize(
    "made",
    [
        SimpleNamespace(op=functools.partial(print), peer=1),
        SimpleNamespace(op=None, peer=1),
        SimpleNamespace(op=print, peer="x"),
        SimpleNamespace(),
    ],
    ids=["partial", "none", "no number", "nothing"],
)
def test_an_odd_partner_is_no_error(monkeypatch: pytest.MonkeyPatch, made: SimpleNamespace) -> None:
    def begin(self: Any, *_: Any) -> None:
        vars(self).update(vars(made))

    operation = type("P2POp", (), {"__init__": begin})
    monkeypatch.setattr(torch.distributed, "P2POp", operation)
    hooks.Peers().watch()
    operation()


def test_modes_of_parts_are_those_of_the_whole_also_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.nn.Module, "train", torch.nn.Module.train)
    marks = Marks()
    marks.start()
    hooks.watch_modes(marks)
    module = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    module.eval()
    with pytest.raises(ValueError, match="boolean"):
        module.train("yes")  # type: ignore[arg-type]
    module.eval()
    assert len(marks.take()) == 3
