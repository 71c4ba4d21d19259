"""A tiny model that has one fault, on one rank, at one step: what real jobs meet, caused on
purpose."""

import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 32


class FaultyNet(nn.Module):
    """A linear layer whose forward pass fails as told."""

    def __init__(self, fault: str, rank: int, step: int) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.fault, self.step, self.calls = fault, step, 0
        self.here = int(os.environ["RANK"]) == rank

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss, unless this is the step and the rank of the fault."""
        self.calls += 1
        loss = nn.functional.mse_loss(self.layer(x), y)
        # Losses of the windows without gradient sync are not looked at: the fault in them stays
        # until one that is.
        lasting = self.fault == "nan" and self.calls > self.step
        if self.here and (self.calls == self.step or lasting):
            loss = self._fail(loss)
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random input and target."""
        return {name: torch.randn(batch_size, WIDTH, generator=generator) for name in ("x", "y")}

    def _fail(self, loss: Tensor) -> Tensor:
        if self.fault == "raise":
            raise ValueError("the fault that was asked for")
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.fault == "leave":
            os._exit(0)
        if self.fault == "exit":
            sys.exit(0)
        if self.fault == "deaf":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
        if self.fault in ("hang", "deaf"):
            hang_here()
        if self.fault == "uneven":
            dist.all_reduce(torch.ones(1))  # where the others reduce gradients
        if self.fault == "oom":
            torch.empty(2**60, dtype=torch.uint8)
        return loss * float("nan") if self.fault == "nan" else loss


class HungryNet(FaultyNet):
    """Asks for more memory than there can be once a batch is larger than five."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss, unless the batch is too large."""
        if len(x) > 5:
            torch.empty(2**60, dtype=torch.uint8)
        return super().forward(x, y)


class DroppingNet(FaultyNet):
    """Draws random numbers in every pass."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of half of the inputs."""
        return super().forward(nn.functional.dropout(x), y)


def dropping() -> nn.Module:
    """A sound model with dropout."""
    return DroppingNet("none", 0, 0)


def hungry() -> nn.Module:
    """A model for which five samples are the most."""
    return HungryNet("none", 0, 0)


def hang_here() -> None:
    """Never returns in any test's time."""
    while True:
        time.sleep(1)


def build(fault: str = "none", rank: int = 0, step: int = 12) -> nn.Module:
    """The model; ``fault`` names what happens on ``rank`` at forward pass ``step``."""
    if fault == "no_reduction":
        _keep_gradients_local()
    return FaultyNet(fault, rank, step)


def _keep_gradients_local() -> None:
    """Make DDP skip its all-reduce, as a broken communication hook would."""
    original = DistributedDataParallel.__init__

    def patched(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.register_comm_hook(None, _return_bucket)

    DistributedDataParallel.__init__ = patched  # type: ignore[method-assign]


def _return_bucket(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
