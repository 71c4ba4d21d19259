"""Steps of optimizers: those of ``torch.optim``, and calls of frameworks that are one step each,
whatever steps within them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, MappingProxyType
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .frames import is_within
from .guard import guarded, unseen
from .imports import after_import
from .marks import OPTIMIZER, STEP, Marks
from .untraced import untraced

_MAX_OPTIMIZERS = 7
"""Told apart; further ones count as the last."""
_MEGATRON = "megatron.core.optimizer"
_STEPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # Its optimizers step one of torch's for each group of parameters (ZeRO 1 and 2) or each
        # part of them (ZeRO 3), or in another process (SuperOffload).
        "deepspeed.runtime.engine": ("DeepSpeedEngine._take_model_step",),
        # A chain steps one of torch's for each of its parts (those of experts).
        f"{_MEGATRON}.optimizer": (
            "FP32Optimizer.step",
            "MixedPrecisionOptimizer.step",
            "ChainedOptimizer.step",
        ),
        f"{_MEGATRON}.layer_wise_optimizer": ("LayerWiseDistributedOptimizer.step",),
    }
)
"""Methods of frameworks that are called once a step, by their modules."""
FindOptimizer = Callable[[Sequence[object], Mapping[str, object]], object]
"""The optimizer that a call with these arguments steps."""


class Optimizers:
    """The optimizers of this process. Of steps within a step the outermost counts; one that raises
    has not been made."""

    def __init__(self, marks: Marks, on_step: Callable[[int], None]) -> None:
        """
        Args:
            marks: Where the steps are noted.
            on_step: Is called with the number of the optimizer after each.
        """
        self._marks, self._on_step = marks, on_step
        self._numbers: dict[int, int] = {}
        self._outer: set[CodeType] = set()

    def watch(self) -> None:
        """Note steps from now on."""
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)
        # It leaves out the optimizer's step where a gradient is infinite: still an iteration.
        self._surround(torch.amp.GradScaler, "step", _first_argument)
        for name, methods in _STEPS.items():
            after_import(name, functools.partial(self._watch_framework, methods))

    def _watch_framework(self, methods: tuple[str, ...], module: Any) -> None:  # noqa: ANN401 - a module
        for method in methods:
            owner, _, name = method.partition(".")
            if hasattr(getattr(module, owner, None), name):
                self._surround(getattr(module, owner), name, _itself)

    def _surround(self, owner: Any, name: str, optimizer_of: FindOptimizer) -> None:  # noqa: ANN401 - a class
        """Have a method counted as a step of what ``optimizer_of`` finds in its arguments."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def stepping(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the original's
            frame = sys._getframe()
            number = None
            if not is_within(frame, self._outer):
                number = self._number(optimizer_of(args, options))
                self._marks.note(OPTIMIZER, number)
            try:
                result = original(*args, **options)
            except BaseException as error:
                unseen(error)
                raise
            if number is not None:
                self._note(number)
            return result

        self._outer.add(stepping.__code__)  # type: ignore[attr-defined] # of a function
        stepping._torchdynamo_disable = True  # type: ignore[attr-defined] # what torch._dynamo.disable sets, without its import
        setattr(owner, name, stepping)

    def _number(self, optimizer: object) -> int:
        number = self._numbers.get(id(optimizer), len(self._numbers))
        if number < _MAX_OPTIMIZERS:
            self._numbers[id(optimizer)] = number
        return number

    def _before(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Is called by the function that torch puts around every ``step``."""
        untraced(self._begin, optimizer, sys._getframe(1))

    def _after(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        untraced(self._end, optimizer, sys._getframe(1))

    def _begin(self, optimizer: torch.optim.Optimizer, step: FrameType) -> None:
        if not self._is_a_part(step):
            self._marks.note(OPTIMIZER, self._number(optimizer))

    def _end(self, optimizer: torch.optim.Optimizer, step: FrameType) -> None:
        if not self._is_a_part(step):
            self._note(self._number(optimizer))

    def _is_a_part(self, step: FrameType) -> bool:
        """Whether this call of torch's function is one within another."""
        return is_within(step, {step.f_code, *self._outer})

    def _note(self, number: int) -> None:
        self._marks.note(STEP, number)
        guarded(self._on_step, number)


def _itself(args: Sequence[object], _: Mapping[str, object]) -> object:
    return args[0]


def _first_argument(args: Sequence[object], options: Mapping[str, object]) -> object:
    return args[1] if len(args) > 1 else options.get("optimizer")
