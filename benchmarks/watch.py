"""What ``torchscale watch`` costs a job.

::

    python benchmarks/watch.py --pairs 300

Blocks of steps with and without the collector alternate within one process (``watch_cost.py``), and
printed are the ratio of their throughputs with the 95 % interval of its mean, the time in hooks,
and processor time and bytes a rank-hour. What ``watch`` says of jobs is another matter
(``job_causes.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from torchscale.analysis.stats.estimate import Estimate

HERE = Path(__file__).resolve().parent
STRATEGIES = ("ddp", "fsdp", "plain")
RANKS = 2
END_SECONDS = 1800
"""In which a measurement of the cost has ended."""
STARTING_SECONDS, COMMAND_SECONDS = 20.0, 60.0
"""Of a job whose command's processor time is measured: what is left out, and how long it lasts."""


def _torchrun(program: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(RANKS), str(HERE / program)]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=END_SECONDS,
    )


def measure_cost(options: argparse.Namespace) -> None:
    """Print what the collector costs a rank, by blocks of steps with and without it within one
    process (``watch_cost.py``), and what the command costs beside it."""
    for strategy in options.strategies:
        with tempfile.TemporaryDirectory() as name:
            arguments = ["--strategy", strategy, "--pairs", str(options.pairs), "-o", name]
            done = _run([*_torchrun("watch_cost.py"), *arguments])
            if done.returncode != 0:
                raise RuntimeError(f"{strategy}: {done.stderr[-2000:]}")
            costs = [
                json.loads((Path(name) / f"rank-{rank}.json").read_text()) for rank in range(RANKS)
            ]
            step = _print_cost(strategy, costs)
            share = _command_share(Path(name) / "watched", strategy, step)
        print(
            f"  the command: {3600 * share / RANKS:.1f} s of processor time a rank-hour", flush=True
        )


def _print_cost(strategy: str, costs: Sequence[dict[str, Any]]) -> float:
    """Print what was measured; the mean step with the collector, in seconds."""
    pairs = costs[0]["pairs"]
    step = fmean(attached[0] for attached, _ in pairs)
    print(
        f"{strategy}: steps of {1e3 * step:.1f} ms; {len(pairs)} pairs of blocks of "
        f"{costs[0]['block_steps']} steps; throughput with ÷ without {_ratio(pairs, 0)}"
    )
    for rank, cost in enumerate(costs):
        attached = cost["attached_seconds"]
        # Moments that the optimizer's hooks do not note come in pairs around a function.
        around = cost["hook_seconds"] * cost["moments_per_step"] / 2
        hooks, used = cost["step_hook_seconds"] + around, cost["step_hook_cpu_seconds"] + around
        thread = cost["thread_seconds"] / attached
        written = cost["written_bytes"] / attached
        told = (
            f"processor time without ÷ with {_ratio(cost['pairs'], 1)}",
            f"{1e6 * hooks:.0f} µs a step in hooks, {1e6 * used:.0f} µs of processor time "
            f"({100 * used / step:.2f} % of the step)",
            f"{cost['moments_per_step']:.1f} moments a step",
            f"the thread takes {100 * thread:.2f} % of a core",
            f"{3600 * (thread + used / step):.1f} s of processor time and "
            f"{3600 * written / 1e6:.1f} MB written a rank-hour",
            f"{cost['lost_calls']} collectives lost",
        )
        print(f"  rank {rank}: {'; '.join(told)}")
    return step


def _ratio(pairs: Sequence[Sequence[Sequence[float]]], place: int) -> str:
    """Without ÷ with the collector, with the 95 % interval of its mean; ``place`` 0 for wall time and
    1 for processor time."""
    return Estimate.of_log_mean([out[place] / on[place] for on, out in pairs]).text("{:.4f}".format)


def _command_share(directory: Path, strategy: str, step_seconds: float) -> float:
    """Processor time that the command takes per second, of a job that has been running for a
    while."""
    steps = str(round((STARTING_SECONDS + COMMAND_SECONDS) / step_seconds))
    watch = [sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", str(directory), "--"]
    # Steps that sleep as long as those that were measured took, so that it lasts long enough.
    options = ["--place", "none", "--step-ms", str(1e3 * step_seconds), "--strategy", strategy]
    job = [*_torchrun("jobs/slow_rank.py"), *options, "--steps", steps]
    readings: list[tuple[float, float]] = []
    with subprocess.Popen(
        [*watch, *job],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        command = psutil.Process(process.pid)
        began = time.monotonic()
        while True:
            try:
                process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                times = command.cpu_times()
            if time.monotonic() - began > STARTING_SECONDS:
                readings.append((time.monotonic(), times.user + times.system))
    readings = readings[
        : -max(2, len(readings) // 10)
    ]  # the end, with the report, is no part of it
    (first, used), (last, used_until) = readings[0], readings[-1]
    return (used_until - used) / (last - first)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--pairs", type=int, default=300)
    measure_cost(parser.parse_args())


if __name__ == "__main__":
    main()
