"""A sound model whose builder or first step does something to its process, its files or its
clocks."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 32
MOST_MEMORY = 4 * 2**30
"""Bytes; the tests' limits are lower."""
CLOCKS = (
    "perf_counter",
    "monotonic",
    "time",
    "process_time",
    "perf_counter_ns",
    "monotonic_ns",
    "time_ns",
)


class Net(nn.Module):
    """A linear layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.kind, self.calls = kind, 0

    def forward(self, x: Tensor) -> Tensor:
        """The loss; in its fifth call it does what it was built for."""
        self.calls += 1
        if self.calls == 5:
            act(self.kind)
        loss: Tensor = self.layer(x).square().mean()
        return loss

    def make_batch(self, batch_size: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Random input."""
        return {"x": torch.randn(batch_size, WIDTH, generator=generator)}


def act(kind: str) -> None:
    """What the model does beside its work."""
    if kind == "clocks":
        slow_down_clocks()
    if kind == "removes its folder":
        shutil.rmtree(Path(os.environ["REMOVED"]))
    if kind == "chdir":
        os.chdir("/")
    if kind == "signals":
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
            signal.SIGUSR1,
            signal.SIGHUP,
            signal.SIGALRM,
        ):
            signal.signal(number, signal.SIG_IGN)
    if kind == "closes":
        for descriptor in (0, 1, 2):
            os.close(descriptor)
    if kind in ("prints", "prints a gigabyte"):
        for _ in range(20 if kind == "prints" else 1000):
            sys.stdout.write("x" * 999_999 + "\n")
        sys.stdout.flush()
    if kind == "forks" and os.fork() == 0:
        time.sleep(300)
        os._exit(0)
    if kind == "starts a session":
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    if kind == "grows":
        grow()
    if kind == "daemon":
        start_daemon()
    if kind == "raises":
        raise RuntimeError(
            f"cannot fetch https://bob:{os.environ['HUB_TOKEN']}@hub/x with "
            f"{os.environ['HUB_TOKEN']}"
        )


def grow() -> None:
    """Take more and more memory, up to what no test machine lacks."""
    held = []
    for _ in range(MOST_MEMORY // 2**26):
        held.append(torch.ones(2**26, dtype=torch.uint8))
        time.sleep(0.01)


def slow_down_clocks() -> None:
    """All clocks of :mod:`time` go at a tenth of their rate from now on."""
    for name in CLOCKS:
        setattr(time, name, slowed(getattr(time, name)))


def slowed(clock: Callable[[], Any]) -> Callable[[], Any]:
    """A clock that goes at a tenth of the rate."""
    began = clock()
    return lambda: began + (clock() - began) / 10


def start_daemon() -> None:
    """A process in a session of its own, with two parents that are gone and a clean environment."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    subprocess.Popen(
        ["sleep", "300"], env={"TORCHSCALE_DAEMON_OF": str(os.getppid())}, start_new_session=True
    )
    os._exit(0)


def build(kind: str = "none", **options: Any) -> nn.Module:
    """The model; ``options`` are printed, as a user's program may do."""
    print("options:", options, os.environ.get("HUB_TOKEN"), file=sys.stderr, flush=True)
    expected = options.get("expects")
    if expected is not None and options.get("address") != os.environ[expected]:
        raise ValueError(f"the address is {options.get('address')!r}")
    return Net(kind)
