"""A job of which one rank, or all, do more in some steps.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/slow_rank.py --rank 1 --extra-ms 6
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from training import (
    MICRO_BATCHES,
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    random_batches,
    row_seconds,
)

PLACES = ("none", "forward", "backward", "host")
SHAPES = ("always", "middle", "growing", "spells")
SPELL_SECONDS = 1.2


@dataclass
class Lateness:
    """How much more this rank does, and when.

    Attributes:
        place: One of :data:`PLACES`.
        seconds: In a step that has it; at the end, of one that grows.
        shape: One of :data:`SHAPES`.
        burns: Whether it computes, or waits.
        every: Steps from one to the next.
        first: Step from which on it is late, if it is from the middle on.
        steps: Of the whole run.
    """

    place: str
    seconds: float
    shape: str
    burns: bool
    every: int
    first: int
    steps: int
    step: int = 0

    def now(self, place: str) -> float:
        """Seconds in this step."""
        if place != self.place or self.step % self.every != self.every - 1:
            return 0.0
        if self.shape == "middle" and self.step < self.first:
            return 0.0
        if self.shape == "spells" and int(time.time() / SPELL_SECONDS) % 2:
            return 0.0
        growth = self.step / self.steps if self.shape == "growing" else 1.0
        return self.seconds * growth

    def asleep(self, place: str) -> float:
        """Seconds that are waited."""
        return 0.0 if self.burns else self.now(place)

    def turns(self, place: str) -> Iterator[int]:
        """Numbers, until the seconds that are computed are over."""
        until = time.perf_counter() + (self.now(place) if self.burns else 0.0)
        turn = 0
        while time.perf_counter() < until:
            yield turn
            turn += 1


LATE = Lateness("none", 0.0, "always", burns=False, every=1, first=0, steps=1)
_MATRIX = torch.eye(128)


def route_tokens(x: Tensor) -> Tensor:
    """What a rank does more in its forward pass."""
    time.sleep(LATE.asleep("forward"))
    for _ in LATE.turns("forward"):
        torch.mm(_MATRIX, _MATRIX)
    return x


def scale_gradient(gradient: Tensor) -> Tensor:
    """What a rank does more in its backward pass."""
    time.sleep(LATE.asleep("backward"))
    for _ in LATE.turns("backward"):
        torch.mm(_MATRIX, _MATRIX)
    return gradient


def track_metrics() -> None:
    """What a rank does more after its step."""
    time.sleep(LATE.asleep("host"))
    for _ in LATE.turns("host"):
        torch.mm(_MATRIX, _MATRIX)


class Routed(Network):
    """Square layers behind a router."""

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        output = super().forward(route_tokens(x))
        if output.requires_grad:
            output.register_hook(scale_gradient)  # type: ignore[no-untyped-call]
        return output


def main() -> None:
    """Train."""
    parser = arguments(__doc__)
    parser.add_argument("--place", choices=PLACES, default="forward")
    parser.add_argument("--shape", choices=SHAPES, default="always")
    parser.add_argument("--extra-ms", type=float, default=6.0)
    parser.add_argument("--burn", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    join()
    if is_chosen(options):
        LATE.place, LATE.seconds, LATE.shape = options.place, options.extra_ms / 1e3, options.shape
        LATE.burns, LATE.every, LATE.first = options.burn, options.every, options.first
        LATE.steps = options.steps
        if options.strategy == "pipeline" and options.place in ("forward", "backward"):
            LATE.seconds /= MICRO_BATCHES
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Routed(layers, row_seconds=seconds))
    batches = random_batches()
    began, skipped = time.perf_counter(), min(20, options.steps // 4)
    for step in range(options.steps):
        if step == skipped:
            began = time.perf_counter()
        LATE.step = step
        job.train_step(next(batches))
        track_metrics()
    mean = (time.perf_counter() - began) / (options.steps - skipped)
    if dist.get_rank() == 0:
        print(f"{mean * 1e3:.3f} ms a step", flush=True)
    leave()


if __name__ == "__main__":
    main()
