"""What is noted around functions of torch, whatever they do."""

from __future__ import annotations

import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from torchscale.worker.watch import hooks
from torchscale.worker.watch.marks import (
    BACKWARD,
    BACKWARD_END,
    EVALUATION,
    TRAINING,
    Marks,
    moment,
)


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


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
@pytest.mark.parametrize("was_training", [True, False])
def test_modes_that_lightning_restores_end_an_evaluation(
    monkeypatch: pytest.MonkeyPatch, package: str, was_training: bool
) -> None:
    """As ``lightning/pytorch/utilities/model_helpers.py`` of 2.6 does."""

    class ModuleMode:
        def __init__(self, module: torch.nn.Module) -> None:
            self.mode = {name: part.training for name, part in module.named_modules()}

        def restore(self, module: torch.nn.Module) -> None:
            for name, part in module.named_modules():
                part.training = self.mode[name]

    helpers = ModuleType(f"{package}.utilities.model_helpers")
    helpers._ModuleMode = ModuleMode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, helpers.__name__, helpers)
    monkeypatch.setattr(torch.nn.Module, "train", torch.nn.Module.train)
    marks = Marks()
    marks.start()
    hooks.watch_modes(marks)
    module = torch.nn.Sequential(torch.nn.Linear(1, 1))
    module.training = was_training
    mode = ModuleMode(module)
    module.eval()
    mode.restore(module)

    assert module.training is was_training
    kinds = [moment(mark)[0] for mark in marks.take()]
    assert kinds == [EVALUATION, TRAINING][: 1 + was_training]


def test_backward_passes_of_megatron_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = ModuleType("megatron.core.pipeline_parallel.schedules")
    schedules.custom_backward = lambda output, grad: (output, grad)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, schedules.__name__, schedules)
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    replicated = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(replicated, "forward", replicated.forward)
    marks = Marks()
    marks.start()
    hooks.watch_passes(marks)

    assert schedules.custom_backward(1, grad=2) == (1, 2)
    assert [moment(mark)[0] for mark in marks.take()] == [BACKWARD, BACKWARD_END]
