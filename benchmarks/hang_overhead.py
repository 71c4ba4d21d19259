"""What it costs a rank to be ready for an autopsy: steps with the thread that answers requests ÷
steps without it.

::

    python benchmarks/hang_overhead.py
    python benchmarks/hang_overhead.py --pairs 60 --seconds 4

Blocks of tiny-resnet's steps in one process, on one core, with and without the thread in turn, and
the order of each pair drawn. The second line is the noise of the comparison itself: pairs of blocks
that are both without it. torch's flight recorder is not ours to switch: it is as torch sets it in
either block.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
from pathlib import Path
from time import perf_counter

from bare_loop import BareLoop, pin
from fidelity import describe

from torchscale.worker.hang import answering_requests


def main() -> None:
    """Print both ratios of the time per step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="of a block: the thread looks once a second"
    )
    arguments = parser.parse_args()
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    pin(1)
    loop = BareLoop.build("tiny-resnet", 8)
    loop.run(50)
    order = random.Random(1)
    ready: list[float] = []
    noise: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        for _ in range(arguments.pairs):
            for ratios, on in ((ready, True), (noise, False)):
                ratios.append(
                    _ratio(loop, arguments.seconds, Path(name), on=on, first=order.random() < 0.5)
                )
    print(f"with the thread ÷ without: {describe(ready)}")
    print(f"without ÷ without:         {describe(noise)}")


def _ratio(loop: BareLoop, seconds: float, directory: Path, *, on: bool, first: bool) -> float:
    """Time per step of a block with the thread (if ``on``) ÷ that of a block without it."""
    times = {}
    for mine in (first, not first):
        with answering_requests(directory, 0, 0.0) if on and mine else contextlib.nullcontext():
            times[mine] = _step_seconds(loop, seconds)
    return times[True] / times[False]


def _step_seconds(loop: BareLoop, seconds: float) -> float:
    start, steps = perf_counter(), 0
    while perf_counter() - start < seconds:
        loop.run(10)
        steps += 10
    return (perf_counter() - start) / steps


if __name__ == "__main__":
    main()
