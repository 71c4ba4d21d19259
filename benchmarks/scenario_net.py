"""A model whose compute is a timed operator plus a small real network, with one injected cause of
lost time.

The timed operator waits instead of computing, so that several ranks on few cores do not slow each
other and the injected cause is the only difference. A trace shows its time as an operator's.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from torchscale.worker.data.synthetic import SyntheticSource
from torchscale.worker.models.interface import PipelineSplit

PAUSE_DISTANCES = (12, 18, 9, 21, 16, 6, 24, 14, 15)
"""Steps from one pause to the next: what comes back at equal distances is periodic work."""
PAUSE_EVERY = sum(PAUSE_DISTANCES) // len(PAUSE_DISTANCES)
"""On average; exactly so many steps for periodic work."""
_PAUSE_PLACES = frozenset(itertools.accumulate(PAUSE_DISTANCES))
SPELL_SECONDS = 1.2
"""A rank that is slow at times is slow for so long, and fast for as long."""
LONG_SHARE = 0.25
"""Of the samples. A micro-batch is as long as its first."""
MAX_LENGTH = 10.0
"""Of a sequence, over that of the others."""
_injected = ExitStack()
"""Undoes what the model built before changed in this process."""


@torch.library.custom_op("scenario::compute", mutates_args=())
def compute(x: Tensor, seconds: float) -> Tensor:
    """Take ``seconds``, like a kernel."""
    time.sleep(seconds)
    return x.clone()


@compute.register_fake
def _(x: Tensor, seconds: float) -> Tensor:
    del seconds
    return torch.empty_like(x)


compute.register_autograd(lambda _, grad: (grad, None))


def _length(x: Tensor) -> float:
    """Of the sequence; 1 in the pass in which a pipeline learns the shapes, on memory that nobody
    has written."""
    length = float(x[0, 0])
    return length if 1.0 <= length <= MAX_LENGTH else 1.0


@torch.library.custom_op("scenario::compute_sequence", mutates_args=())
def compute_sequence(x: Tensor, seconds: float) -> Tensor:
    """Take ``seconds`` times the sequence length, which is the first value of ``x``; as long in the
    backward pass."""
    time.sleep(seconds * _length(x))
    return x.clone()


@compute_sequence.register_fake
def _(x: Tensor, seconds: float) -> Tensor:
    del seconds
    return torch.empty_like(x)


def _keep_length(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ANN401 - torch's own
    del output
    ctx.save_for_backward(inputs[0])
    ctx.seconds = inputs[1]


def _compute_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own
    (x,) = ctx.saved_tensors
    return compute(grad, ctx.seconds * _length(x)), None


compute_sequence.register_autograd(_compute_backward, setup_context=_keep_length)


@torch.library.custom_op("scenario::fault", mutates_args=())
def fault(x: Tensor) -> Tensor:
    """Take no time: marks a step of a recording in which the fault is there."""
    return x.clone()


@fault.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class _Blocks:
    """Whether the fault is there: always, or in every other block of so many steps."""

    def __init__(self) -> None:
        self.length = self.steps = 0

    def has_fault(self) -> bool:
        return not self.length or self.steps // self.length % 2 == 0

    def count(self, *_: object) -> None:
        self.steps += 1


_blocks = _Blocks()


class ScenarioNet(nn.Module):
    """``layers`` square layers and ``seconds`` of compute in the forward pass, more if the cause
    adds some."""

    def __init__(
        self, cause: str, rank: int, extra: float, seconds: float, layers: int, width: int
    ) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.cause, self.rank, self.extra, self.seconds = cause, rank, extra, seconds
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        self.passes += 1
        if self.cause == "uneven_batch" and dist.get_rank() == self.rank:
            x = torch.cat(
                [x, x[: len(x) // 2]]
            )  # half as many samples more, and half as much compute
        if _blocks.length and _blocks.has_fault():
            fault(x[:1])
        x = compute(x, self.seconds + self._extra_now())
        if self.cause == "burn" and dist.get_rank() == self.rank:
            _python_work(self.extra)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.square().mean()

    def _extra_now(self) -> float:
        if self.cause == "none":  # also on one rank, which has no process group
            return 0.0
        mine, size = dist.get_rank(), dist.get_world_size()
        if not _blocks.has_fault():
            return 0.0
        if self.cause in ("slow_rank", "uneven_batch"):
            slow = mine == self.rank
        elif self.cause == "spells":
            slow = mine == self.rank and int(time.monotonic() / SPELL_SECONDS) % 2 == 0
        elif self.cause == "moving":
            slow = self.passes % size == mine
        elif self.cause in ("pauses", "periodic"):
            slow = self.rank in (-1, mine) and self._is_long_pass()
        else:
            slow = False
        return self.extra if slow else 0.0

    def _is_long_pass(self) -> bool:
        if self.cause == "periodic":
            return self.passes % PAUSE_EVERY == 0
        return (self.passes - 1) % sum(PAUSE_DISTANCES) + 1 in _PAUSE_PLACES

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows as a batch."""
        return {"x": torch.randn(batch_size, self.width, generator=generator)}


def build(
    cause: str = "none",
    rank: int = 0,
    extra: float = 0.0,
    seconds: float = 0.02,
    layers: int = 4,
    width: int = 512,
    blocks: int = 0,
) -> nn.Module:
    """The model, with the process prepared for the cause, and for no cause of a model built before.
    With ``blocks`` the cause is there in every other block of so many steps."""
    _injected.close()
    _blocks.length, _blocks.steps = blocks, 0
    if cause == "small_buckets":
        _cap_buckets(extra)
    if cause == "slow_loader":
        _slow_loader(rank, extra)
    if cause == "host_work":
        _injected.callback(register_optimizer_step_post_hook(lambda *_: _host_work(extra)).remove)
    _injected.callback(register_optimizer_step_post_hook(_blocks.count).remove)
    return ScenarioNet(cause, rank, extra, seconds, layers, width)


class TimedLayer(nn.Module):
    """A square layer that takes ``seconds`` for a micro-batch, and ``extra`` more on ``rank``."""

    def __init__(self, width: int, seconds: float, rank: int, extra: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.seconds, self.rank, self.extra = seconds, rank, extra

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        mine = dist.get_rank() if dist.is_initialized() else -1
        x = compute(x, self.seconds + (self.extra if mine == self.rank else 0.0))
        return torch.relu(self.linear(x))


class SequenceLayer(TimedLayer):
    """A timed layer that takes ``seconds`` times the length of the sequence, in each pass."""

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; the length stays its first value."""
        mine = dist.get_rank() if dist.is_initialized() else -1
        if (
            not x.requires_grad
        ):  # the samples: without it the first stage has one backward pass less than the others
            x = x.detach().requires_grad_()
        x = compute_sequence(x, self.seconds + (self.extra if mine == self.rank else 0.0))
        return torch.cat([x[:, :1], torch.relu(self.linear(x))[:, 1:]], dim=1)


class PipelineNet(nn.Module):
    """``layers`` timed layers, to be cut into stages. With the cause ``uneven_stages`` those of the
    last stage take 60 % longer; with ``uneven_micro_batches`` a quarter of the rows are ``1 +
    extra`` times as long as the others, with ``equal_micro_batches`` none is."""

    def __init__(
        self, cause: str, rank: int, extra: float, seconds: float, layers: int, width: int
    ) -> None:
        super().__init__()
        self.width, self.cause, self.seconds = width, cause, seconds
        slow = rank if cause == "slow_rank" else -1
        kind = (
            SequenceLayer
            if cause in ("uneven_micro_batches", "equal_micro_batches")
            else TimedLayer
        )
        self.longest = 1.0 + (extra if cause == "uneven_micro_batches" else 0.0)
        # By number, so that a stage's parameters keep their names.
        self.layers = nn.ModuleDict(
            {str(number): kind(width, seconds, slow, extra) for number in range(layers)}
        )

    def forward(self, x: Tensor) -> Tensor:
        """The output of the last layer."""
        for layer in self.layers.values():
            x = layer(x)
        return x

    def compute_loss(self, output: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Mean square."""
        return (output - batch["target"]).square().mean()

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows as a batch."""
        x = torch.randn(batch_size, self.width, generator=generator)
        x[:, 0] = 1.0
        x[torch.rand(batch_size, generator=generator) < LONG_SHARE, 0] = self.longest
        return {"x": x, "target": x.clone()}

    def pipeline_split(self) -> PipelineSplit:
        """Consecutive layers as stages."""
        return PipelineSplit(
            layers=len(self.layers),
            stage=_stage,
            input_key="x",
            target_key="target",
            loss=lambda output, target: (output - target).square().mean(),
        )


def _stage(module: nn.Module, layers: range, first: bool, last: bool) -> nn.Module:
    del first
    assert isinstance(module, PipelineNet)
    part = PipelineNet("none", -1, 0.0, module.seconds, 0, module.width)
    part.layers = nn.ModuleDict({str(number): module.layers[str(number)] for number in layers})
    if module.cause == "uneven_stages" and last:
        for layer in part.layers.values():
            assert isinstance(layer, TimedLayer)
            layer.seconds = module.seconds * 1.6
    return part


def build_pipeline(
    cause: str = "none",
    rank: int = 0,
    extra: float = 0.0,
    seconds: float = 0.004,
    layers: int = 4,
    width: int = 64,
) -> nn.Module:
    """A model to be cut into stages."""
    _injected.close()
    return PipelineNet(cause, rank, extra, seconds, layers, width)


def _cap_buckets(megabytes: float) -> None:
    original = DistributedDataParallel.__init__

    def patched(self: DistributedDataParallel, *args: object, **options: object) -> None:
        original(self, *args, **{**options, "bucket_cap_mb": megabytes})  # type: ignore[arg-type]

    DistributedDataParallel.__init__ = patched  # type: ignore[method-assign]
    _injected.callback(setattr, DistributedDataParallel, "__init__", original)


def _slow_loader(rank: int, extra: float) -> None:
    original = SyntheticSource.next_batch

    def patched(self: SyntheticSource) -> dict[str, Tensor]:
        if _blocks.has_fault() and (rank < 0 or dist.get_rank() == rank):
            time.sleep(extra)
        return dict(original(self))

    SyntheticSource.next_batch = patched  # type: ignore[method-assign]
    _injected.callback(setattr, SyntheticSource, "next_batch", original)


def _host_work(seconds: float) -> None:
    if _blocks.has_fault():
        _python_work(seconds)


def _python_work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
