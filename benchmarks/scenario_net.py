"""A model whose compute is a timed operator beside a small real network, with one cause of lost time injected.

The timed operator waits instead of computing, so that several ranks on few cores do not slow one another: what is told
apart afterwards is the injected cause and nothing else. Its time is seen in a trace as an operator's.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from torchscale.worker.data.synthetic import SyntheticSource

PAUSE_EVERY = 15


@torch.library.custom_op("scenario::compute", mutates_args=())
def compute(x: Tensor, seconds: float) -> Tensor:
    """Takes ``seconds``, as a kernel would."""
    time.sleep(seconds)
    return x.clone()


@compute.register_fake
def _(x: Tensor, seconds: float) -> Tensor:
    del seconds
    return torch.empty_like(x)


compute.register_autograd(lambda _, grad: (grad, None))


class ScenarioNet(nn.Module):
    """``layers`` square layers; ``seconds`` of compute in the forward pass, more where the cause says so."""

    def __init__(self, cause: str, rank: int, extra: float, seconds: float, layers: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.cause, self.rank, self.extra, self.seconds = cause, rank, extra, seconds
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        self.passes += 1
        if self.cause == "uneven_batch" and dist.get_rank() == self.rank:
            x = torch.cat([x, x[: len(x) // 2]])  # half as many samples more, and half as much compute
        x = compute(x, self.seconds + self._extra_now())
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.square().mean()

    def _extra_now(self) -> float:
        mine, size = dist.get_rank(), dist.get_world_size()
        if self.cause in ("slow_rank", "uneven_batch"):
            slow = mine == self.rank
        elif self.cause == "moving":
            slow = self.passes % size == mine
        else:
            slow = self.cause == "pauses" and self.passes % PAUSE_EVERY == 0
        return self.extra if slow else 0.0

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random rows."""
        return {"x": torch.randn(batch_size, self.width, generator=generator)}


def build(
    cause: str = "none",
    rank: int = 0,
    extra: float = 0.0,
    seconds: float = 0.02,
    layers: int = 4,
    width: int = 512,
) -> nn.Module:
    """The model, with the process prepared for the cause."""
    if cause == "small_buckets":
        _cap_buckets(extra)
    if cause == "slow_loader":
        _slow_loader(rank, extra)
    if cause == "host_work":
        register_optimizer_step_post_hook(lambda *_: _python_work(extra))
    return ScenarioNet(cause, rank, extra, seconds, layers, width)


def _cap_buckets(megabytes: float) -> None:
    original = DistributedDataParallel.__init__

    def patched(self: DistributedDataParallel, *args: object, **options: object) -> None:
        original(self, *args, **{**options, "bucket_cap_mb": megabytes})  # type: ignore[arg-type]

    DistributedDataParallel.__init__ = patched  # type: ignore[method-assign]


def _slow_loader(rank: int, extra: float) -> None:
    original = SyntheticSource.next_batch

    def patched(self: SyntheticSource) -> dict[str, Tensor]:
        if rank < 0 or dist.get_rank() == rank:
            time.sleep(extra)
        return dict(original(self))

    SyntheticSource.next_batch = patched  # type: ignore[method-assign]


def _python_work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
