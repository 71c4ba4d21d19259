"""Share of a sweep of short cells that is spent in steps, and what its launches cost:
``launch.isolation`` cell and group, against bare torchruns and against bare forks.

::

    python benchmarks/sweep_efficiency.py --repeats 3             # twelve cells
    python benchmarks/sweep_efficiency.py --cells 60 --ways group # sixty, with one import of PyTorch
    python benchmarks/sweep_efficiency.py --ways floor group      # against one import and forks, nothing else
    python benchmarks/sweep_efficiency.py --cells 1 --repeats 8   # one cell: what torchscale adds to a torchrun
    python benchmarks/sweep_efficiency.py --cells 1 --steps 300
    python benchmarks/sweep_efficiency.py --ways group --against before=/tmp/before --repeats 5  # two versions

Cells: tiny-resnet at several batch sizes on one and two ranks, each with a fixed number of warm-up
and timed steps; one cell is batch 32 on one rank. The share is the time in warm-up and measured
steps ÷ the total wall time; "with diagnosis" adds the steps without gradient sync that launches of
several ranks run for it. CPU time is that of all
processes: other work on the machine changes it less than wall time. Both are medians, and given as
ratios to the first
way of the same round: to the bare torchruns, which are started one after the other and check
nothing, or to the group of another version (``--against NAME=DIRECTORY``, a checkout). Throughput
of group ÷ cell: of all cells, the interval over cells. Modules are compiled first, as they are in an
installation: a checkout whose files were edited would compile them in every process.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fidelity import describe

from torchscale.util.processes.subprocesses import adopt_orphans

HERE = Path(__file__).resolve().parent
WAYS = ("bare", "floor", "cell", "group")
"""Torchruns of the bare loop, forks of it after one import (``bare_group.py``), and ``torchscale
benchmark`` with either ``launch.isolation``."""
DEFAULT_WAYS = ("bare", "cell", "group")
BATCHES = (4, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Cells:
    """Batch sizes and rank counts: every pair is a cell."""

    batches: tuple[int, ...]
    ranks: tuple[int, ...]
    warmup: int
    steps: int

    @property
    def count(self) -> int:
        """How many."""
        return len(self.batches) * len(self.ranks)


@dataclass(frozen=True)
class Measured:
    """A sweep: wall time, and the parts of it in steps and in the diagnosis's steps, and CPU time,
    in seconds; samples per second by cell."""

    wall: float
    cpu: float
    steps: float
    diagnosis: float
    rates: dict[tuple[int, int], float]


def main() -> None:
    """Alternate the methods and print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--cells", type=int, default=12, help="1, or an even number")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=DEFAULT_WAYS)
    parser.add_argument("--against", action="append", default=[], metavar="NAME=DIRECTORY")
    arguments = parser.parse_args()
    adopt_orphans()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for source in (HERE.parent, *(name.partition("=")[2] for name in arguments.against)):
        compileall.compile_dir(Path(source) / "torchscale", quiet=1)
    if arguments.cells == 1:
        cells = Cells((32,), (1,), arguments.warmup, arguments.steps)
    else:
        count = arguments.cells // 2
        batches = BATCHES if count <= len(BATCHES) else tuple(range(3, 3 + count))
        cells = Cells(batches[:count], (1, 2), arguments.warmup, arguments.steps)
    ways = {
        name.partition("=")[0]: _way("group", cells, name.partition("=")[2])
        for name in arguments.against
    }
    ways |= {name: _way(name, cells) for name in arguments.ways}
    measured: dict[str, list[Measured]] = {name: [] for name in ways}
    for number in range(arguments.repeats):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            measured[name].append(ways[name]())
    print(f"{cells.count} cells of {cells.warmup} + {cells.steps} steps, {arguments.repeats} times")
    first = next(iter(ways))
    for name, sweeps in measured.items():
        wall = statistics.median(sweep.wall for sweep in sweeps)
        cpu = statistics.median(sweep.cpu for sweep in sweeps)
        share = statistics.median(sweep.steps / sweep.wall for sweep in sweeps)
        both = statistics.median((sweep.steps + sweep.diagnosis) / sweep.wall for sweep in sweeps)
        print(
            f"  {name:5}  {wall:5.1f} s, {cpu:5.1f} s of CPU, {share:5.1%} in steps, {both:5.1%} "
            "with diagnosis"
        )
        if name != first and arguments.repeats > 1:
            pairs = list(zip(sweeps, measured[first], strict=True))
            print(
                f"    wall ÷ {first}: "
                f"{describe([mine.wall / theirs.wall for mine, theirs in pairs])}"
            )
            print(
                f"    CPU ÷ {first}: {describe([mine.cpu / theirs.cpu for mine, theirs in pairs])}"
            )
    if {"cell", "group"} <= set(ways) and cells.count > 1:
        print("  throughput, group ÷ cell:", describe(_throughput_ratios(measured)))


def _way(name: str, cells: Cells, source: str = "") -> Callable[[], Measured]:
    """Torchruns of the bare loop, or sweeps of the torchscale in ``source`` (by default the
    installed one)."""

    def measure() -> Measured:
        before = _children_cpu()
        if name in BARE:
            measured = BARE[name](cells)
        else:
            measured = _sweep(name, cells, source)
        return replace(measured, cpu=_children_cpu() - before)

    return measure


def _children_cpu() -> float:
    """CPU seconds of all processes below this one, which have ended: also of those that it has
    adopted."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0):
            pass
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _throughput_ratios(measured: dict[str, list[Measured]]) -> list[float]:
    """Of every cell, the geometric mean over the repeats."""
    group, cell = measured["group"], measured["cell"]
    return [
        statistics.geometric_mean(
            mine.rates[key] / other.rates[key] for mine, other in zip(group, cell, strict=True)
        )
        for key in cell[0].rates
    ]


def _sweep(isolation: str, cells: Cells, source: str) -> Measured:
    """``torchscale benchmark`` on all cells."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "config.json"
        content = {
            "models": "tiny-resnet",
            "batch_sizes": cells.batches,
            "gpu_counts": cells.ranks,
            "device": "cpu",
            "launch": {"isolation": isolation, "threads_per_rank": 1},
            "benchmark": {
                "warmup_steps": cells.warmup,
                "warmup_seconds": 0.0,
                "steady_tolerance": 0.99,
                "measure_steps": cells.steps,
            },
        }
        config.write_text(json.dumps(content))
        out = Path(directory) / "out"
        command = [
            sys.executable,
            "-m",
            "torchscale",
            "--quiet",
            "benchmark",
            str(config),
            "-o",
            str(out),
        ]
        environment = (
            {**_environment(), "PYTHONPATH": str(Path(source).resolve())}
            if source
            else _environment()
        )
        started = time.perf_counter()
        # Its own directory is the first place that ``-m`` looks at.
        subprocess.run(
            command, check=True, env=environment, cwd=source or None, stdout=subprocess.DEVNULL
        )
        wall = time.perf_counter() - started
        records = [
            json.loads(path.read_text()) for path in out.glob("cells/*/launch-0/record.json")
        ]
    assert len(records) == cells.count
    in_steps, diagnosis, rates = 0.0, 0.0, {}
    for record in records:
        ranks = record["payload"]["ranks"]
        diagnosis += (ranks[0]["signals"] or {}).get("unsynchronized_wall_seconds") or 0.0
        in_steps += ranks[0]["warmup"]["seconds"] + sum(ranks[0]["batches"]["seconds"])
        seconds = max(sum(rank["batches"]["seconds"]) for rank in ranks)
        steps = sum(ranks[0]["batches"]["steps"])
        samples = ranks[0]["samples_per_step"]
        rates[samples, len(ranks)] = samples * len(ranks) * steps / seconds
    return Measured(wall, 0.0, in_steps, diagnosis, rates)


def _bare(cells: Cells) -> Measured:
    """A torchrun of the bare loop for each cell."""
    started = time.perf_counter()
    in_steps, rates = 0.0, {}
    with tempfile.TemporaryDirectory() as directory:
        for ranks in cells.ranks:
            for batch in cells.batches:
                out = Path(directory) / "bare.json"
                local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
                script = [str(HERE / "bare_loop.py"), str(out), "--batch-size", str(batch)]
                script += ["--warmup", str(cells.warmup), "--steps", str(cells.steps)]
                command = [sys.executable, "-m", "torch.distributed.run", *local, *script]
                subprocess.run(command, check=True, env=_environment(), stderr=subprocess.DEVNULL)
                rate = json.loads(out.read_text())["samples_per_second"]
                in_steps += (cells.warmup + cells.steps) * batch * ranks / rate
                rates[batch, ranks] = rate
    return Measured(time.perf_counter() - started, 0.0, in_steps, 0.0, rates)


def _floor(cells: Cells) -> Measured:
    """One import, and forks of the bare loop for each cell."""
    keys = [(batch, ranks) for ranks in cells.ranks for batch in cells.batches]
    wanted = [{"batch": batch, "ranks": ranks} for batch, ranks in keys]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "bare.json"
        command = [sys.executable, str(HERE / "bare_group.py"), str(out), json.dumps(wanted)]
        command += ["--warmup", str(cells.warmup), "--steps", str(cells.steps)]
        subprocess.run(command, check=True, env=_environment(), stderr=subprocess.DEVNULL)
        rates = dict(zip(keys, json.loads(out.read_text()), strict=True))
    wall = time.perf_counter() - started
    steps = cells.warmup + cells.steps
    in_steps = sum(steps * batch * ranks / rates[batch, ranks] for batch, ranks in keys)
    return Measured(wall, 0.0, in_steps, 0.0, rates)


BARE = {"bare": _bare, "floor": _floor}


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}


if __name__ == "__main__":
    main()
