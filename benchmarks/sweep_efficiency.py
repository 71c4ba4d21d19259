"""Share of a sweep of short cells that is spent in steps: ``launch.isolation`` cell and group, against bare torchruns.

::

    python benchmarks/sweep_efficiency.py --repeats 3

Twelve cells: tiny-resnet at six batch sizes on one and two ranks, each with a fixed number of warm-up and timed steps.
The share is the time in warm-up and measured steps ÷ the total wall time. Wall times are also given as a ratio to the
bare torchruns, which are started one after the other and check nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
BATCHES = (4, 8, 12, 16, 24, 32)
RANKS = (1, 2)
Measured = tuple[float, float]
"""Wall time of a sweep and the part of it spent in steps, in seconds."""


def main() -> None:
    """Alternate the three methods and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    ways: dict[str, Callable[[], Measured]] = {
        "bare torchruns": lambda: _bare(arguments.warmup, arguments.steps),
        "isolation: cell": lambda: _sweep("cell", arguments.warmup, arguments.steps),
        "isolation: group": lambda: _sweep("group", arguments.warmup, arguments.steps),
    }
    found: dict[str, list[Measured]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            found[name].append(way())
    print(
        f"{len(BATCHES) * len(RANKS)} cells of {arguments.warmup} + {arguments.steps} steps, {arguments.repeats} times"
    )
    bare = found["bare torchruns"]
    for name, measured in found.items():
        wall = statistics.fmean(seconds for seconds, _ in measured)
        share = statistics.fmean(steps / seconds for seconds, steps in measured)
        ratios = [seconds / other for (seconds, _), (other, _) in zip(measured, bare, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"  {name:16}  {wall:5.1f} s, {share:5.1%} in steps; ÷ bare {statistics.fmean(ratios):.2f} ({spread})")


def _sweep(isolation: str, warmup: int, steps: int) -> Measured:
    """``torchscale benchmark`` on all cells."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.json"
        content = {
            "models": "tiny-resnet",
            "batch_sizes": BATCHES,
            "gpu_counts": RANKS,
            "device": "cpu",
            "launch": {"isolation": isolation, "threads_per_rank": 1},
            "benchmark": {
                "warmup_steps": warmup,
                "warmup_seconds": 0.0,
                "steady_tolerance": 0.99,
                "measure_steps": steps,
            },
        }
        config.write_text(json.dumps(content))
        out = Path(directory) / "out"
        command = [sys.executable, "-m", "torchscale", "--quiet", "benchmark", str(config), "-o", str(out)]
        started = time.perf_counter()
        subprocess.run(command, check=True, env=_environment(), stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - started
        records = [json.loads(path.read_text()) for path in out.glob("cells/*/launch-0/record.json")]
    assert len(records) == len(BATCHES) * len(RANKS)
    first = [record["payload"]["ranks"][0] for record in records]
    return wall, sum(rank["warmup"]["seconds"] + sum(b["seconds"] for b in rank["batches"]) for rank in first)


def _bare(warmup: int, steps: int) -> Measured:
    """A torchrun of the bare loop for each cell."""
    started = time.perf_counter()
    seconds = 0.0
    with tempfile.TemporaryDirectory() as directory:
        for ranks in RANKS:
            for batch in BATCHES:
                out = Path(directory) / "bare.json"
                local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
                script = [str(HERE / "bare_loop.py"), str(out), "--batch-size", str(batch)]
                script += ["--warmup", str(warmup), "--steps", str(steps)]
                command = [sys.executable, "-m", "torch.distributed.run", *local, *script]
                subprocess.run(command, check=True, env=_environment(), stderr=subprocess.DEVNULL)
                rate = json.loads(out.read_text())["samples_per_second"]
                seconds += (warmup + steps) * batch * ranks / rate
    return time.perf_counter() - started, seconds


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    main()
