"""Which experts the tokens of each step go to, and how long a rank's experts take.

Counts stay on the device and times are marks of a clock until a batch of steps has ended: nothing
waits for the device inside a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchscale.schema.launch.experts import ExpertStep, ExpertUse
from torchscale.worker.measure.clock import BatchClock
from torchscale.worker.models.experts import ExpertLayer
from torchscale.worker.process_group import Ranks

_MOST_COUNTS = 32_768
"""Counts in a record, about 250 KB: DeepSeek-V3 has 58 layers of 256 experts, 14,848 counts."""


@dataclass(frozen=True)
class ExpertBatch:
    """A batch of steps.

    Attributes:
        steps: Each step.
        tokens: This rank's tokens of all steps, per layer and expert.
    """

    steps: tuple[ExpertStep, ...]
    tokens: Tensor


@dataclass
class _Step:
    """What was noted of a step: for each run of a layer's experts whether it was in the forward
    pass, tokens that they computed, and tokens per layer and expert of each pass."""

    runs: list[bool]
    computed: int
    tokens: list[Tensor]


class ExpertMeter:
    """Takes marks before and after the experts of each layer, in both passes.

    Where activations are computed again, experts run once more in the backward pass, which counts
    in their time and not in their tokens.
    """

    def __init__(self, layers: list[ExpertLayer], clock: BatchClock) -> None:
        self._layers, self._clock = layers, clock
        self._in_forward = self._is_open = False
        self._steps = [_Step([], 0, [])]
        for layer in layers:
            layer.experts.register_forward_pre_hook(self._before)
            layer.experts.register_forward_hook(self._after)

    def begin_forward(self) -> None:
        """A forward pass begins."""
        self._in_forward = True

    def end_forward(self) -> None:
        """A forward pass has ended, and its backward pass begins."""
        self._in_forward = False
        tokens = [layer.tokens for layer in self._layers if layer.tokens is not None]
        step = self._steps[-1]
        step.tokens.append(torch.stack(tokens))
        step.computed += sum(layer.computed for layer in self._layers)

    def end_step(self) -> None:
        """A step has ended."""
        self._steps.append(_Step([], 0, []))

    def clear(self) -> None:
        """Drop what was noted."""
        if any(step.runs for step in self._steps):
            self._clock.read()
        self._steps = [_Step([], 0, [])]

    def read(self) -> ExpertBatch:
        """The steps since the last call or :meth:`clear`; waits for the device."""
        steps = self._steps[:-1]
        per_step = torch.stack([torch.stack(step.tokens).sum(dim=0) for step in steps]).cpu()
        times = self._clock.read()
        seconds = [end - begin for begin, end in zip(times[::2], times[1::2], strict=True)]
        self._steps = [_Step([], 0, [])]
        peaks = per_step.amax(dim=(1, 2)) / per_step.double().mean(dim=(1, 2))
        read = []
        for step, peak in zip(steps, peaks.tolist(), strict=True):
            own, seconds = seconds[: len(step.runs)], seconds[len(step.runs) :]
            forward = [one for one, is_forward in zip(own, step.runs, strict=True) if is_forward]
            read.append(
                ExpertStep(
                    tokens_per_rank=step.computed,
                    seconds=sum(own),
                    forward_seconds=sum(forward),
                    peak=peak,
                )
            )
        return ExpertBatch(tuple(read), per_step.sum(dim=0))

    def _before(self, experts: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        del experts
        x = inputs[0]
        if x.requires_grad:
            # Their backward pass ends.
            x.register_hook(lambda _: self._end())  # type: ignore[no-untyped-call]
        self._begin(is_forward=self._in_forward)

    def _after(self, experts: nn.Module, inputs: object, out: Tensor) -> None:
        del experts, inputs
        self._end()
        if out.requires_grad:
            out.register_hook(lambda _: self._begin(is_forward=False))  # type: ignore[no-untyped-call]

    def _begin(self, *, is_forward: bool) -> None:
        self._end()  # of a run that recomputation broke off once it had what it needs
        self._steps[-1].runs.append(is_forward)
        self._clock.mark()
        self._is_open = True

    def _end(self) -> None:
        if self._is_open:
            self._clock.mark()
        self._is_open = False


def use_of_experts(
    layers: list[ExpertLayer], tokens: Tensor, steps: int, degree: int, ranks: Ranks
) -> ExpertUse:
    """Tokens of each expert over ``steps`` steps. Call it on every rank.

    Args:
        layers: The model's expert layers.
        tokens: This rank's, per layer and expert.
        steps: Measured steps.
        degree: Ranks over which the experts of a layer are spread.
        ranks: Whose tokens are added up.
    """
    router, total = layers[0].router, ranks.add_up(tokens)
    most_layers = max(1, _MOST_COUNTS // router.experts)
    uneven = total.amax(dim=1).argsort(descending=True, stable=True)
    kept = uneven[:most_layers].sort().values
    return ExpertUse(
        experts=router.experts,
        chosen=router.chosen,
        degree=degree,
        steps=steps,
        layers=tuple(kept.tolist()),
        layer_count=len(layers),
        tokens_per_expert=tuple(tuple(row) for row in total[kept].tolist()),
    )
