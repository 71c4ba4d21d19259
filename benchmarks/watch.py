"""Does ``torchscale watch`` find the injected cause and its rank in programs of any strategy?

::

    python benchmarks/watch.py                        # two and four ranks, about an hour
    python benchmarks/watch.py --ranks 2 --only none forward
    python benchmarks/watch.py --cost --pairs 300     # what the collector costs

Each run is ``torchscale watch -- torchrun … watched_program.py``. A run is right if the rule of its
cause names its rank (and for a cause that begins or grows says so), and if no rank is named where
none is slow. ``--cost`` alternates blocks of steps with and without the collector within one process,
and prints the ratio of their throughputs with the 95 % interval of its mean, the time in hooks, and
processor time and bytes a rank-hour.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from torchscale.analysis.stats.series import mean_interval

PROGRAM = Path(__file__).resolve().parent / "watched_program.py"
STRATEGIES = ("ddp", "fsdp", "zero", "tensor", "pipeline", "plain")
COST_STRATEGIES = ("ddp", "fsdp", "plain")
END_SECONDS = 300
COST_SECONDS = 1800
"""In which a measurement of the cost has ended."""
STARTING_SECONDS, COMMAND_SECONDS = 20.0, 60.0
"""Of a job whose command's processor time is measured: what is left out, and how long it lasts."""
STEPS = 300
LONG_STEPS = 600
"""For what changes within the run."""
NAMING = ("straggler", "intermittent_straggler", "uneven_stages", "input_pipeline", "pauses")


@dataclass(frozen=True)
class Scenario:
    """A cause as it is injected, and how it is to be named.

    Attributes:
        name: In the table.
        arguments: Of the program.
        kinds: Findings that name it.
        rank: Whom they name; ``None`` for nobody.
        words: Any of these in the finding's words or span; empty for none in particular.
        steps: Of the run.
    """

    name: str
    arguments: tuple[str, ...]
    kinds: tuple[str, ...]
    rank: int | None
    words: tuple[str, ...] = ()
    steps: int = STEPS


_SLOW = ("straggler", "uneven_stages")
SCENARIOS = (
    Scenario("none", (), (), None),
    Scenario("forward", ("--cause", "forward"), _SLOW, 1),
    Scenario("backward", ("--cause", "backward"), _SLOW, 1),
    Scenario("host", ("--cause", "host"), _SLOW, 1),
    Scenario("burn", ("--cause", "host", "--burn"), _SLOW, 1),
    Scenario("loader", ("--cause", "loader"), ("input_pipeline",), 1),
    Scenario("all ranks", ("--cause", "forward", "--rank", "-1"), (), None),
    Scenario(
        "middle",
        ("--cause", "forward", "--shape", "middle"),
        _SLOW,
        1,
        ("since step", "longer and longer"),
        LONG_STEPS,
    ),
    Scenario(
        "growing",
        ("--cause", "forward", "--shape", "growing"),
        _SLOW,
        1,
        ("longer and longer", "since step"),
        LONG_STEPS,
    ),
    Scenario(
        "spells",
        ("--cause", "forward", "--shape", "spells", "--milliseconds", "9"),
        ("intermittent_straggler",),
        1,
        (),
        LONG_STEPS,
    ),
    Scenario(
        "checkpoint",
        ("--cause", "checkpoint", "--rank", "0", "--milliseconds", "180"),
        ("pauses",),
        0,
        (),
        LONG_STEPS,
    ),
    Scenario(
        "evaluation",
        ("--cause", "evaluation", "--milliseconds", "180"),
        ("pauses",),
        1,
        ("evaluations",),
        LONG_STEPS,
    ),
)


def watched(directory: Path, ranks: int, arguments: Sequence[str]) -> dict[str, Any]:
    """The report of one run."""
    watch = [sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", str(directory), "--"]
    done = _run([*watch, *_torchrun(ranks), *arguments])
    if done.returncode != 0:
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    content: dict[str, Any] = json.loads((directory / "watch.json").read_text())
    return content


def _torchrun(ranks: int, program: str = str(PROGRAM)) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(ranks), program]


def _run(command: Sequence[str], seconds: float = END_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def named_ranks(report: dict[str, Any]) -> set[int]:
    """Ranks that any finding names."""
    findings = [item["finding"] for item in report["findings"]]
    return {
        finding["rank"]
        for finding in findings
        if finding["kind"] in NAMING and finding["rank"] is not None
    }


def is_right(report: dict[str, Any], scenario: Scenario) -> bool:
    """Whether what was injected was found, and nobody else was named."""
    named = named_ranks(report)
    if scenario.rank is None:
        return not named
    if named - {scenario.rank}:
        return False
    return any(_fits(item, scenario) for item in report["findings"])


def _fits(item: dict[str, Any], scenario: Scenario) -> bool:
    finding = item["finding"]
    if finding["kind"] not in scenario.kinds or finding["rank"] != scenario.rank:
        return False
    span = "since step" if item["first_step"] is not None else ""
    told = f"{finding['summary']} {span}"
    return not scenario.words or any(word in told for word in scenario.words)


def found_text(report: dict[str, Any]) -> str:
    """What was found, in a line."""
    told = [
        f"{item['finding']['kind']} {item['finding']['rank']}"
        + (f" since {item['first_step']}" if item["first_step"] is not None else "")
        for item in report["findings"]
        if item["finding"]["kind"] in NAMING
    ]
    return ", ".join(told) or "nobody"


def runs(options: argparse.Namespace) -> Iterator[tuple[int, str, Scenario]]:
    """Ranks, strategy and scenario of each run."""
    for ranks in options.ranks:
        for strategy in options.strategies:
            for scenario in SCENARIOS:
                if not options.only or scenario.name in options.only:
                    yield ranks, strategy, scenario


def find_causes(options: argparse.Namespace) -> None:
    """Run all, and print each and the share that is right."""
    right: list[bool] = []
    named_in_clean: list[bool] = []
    with tempfile.TemporaryDirectory() as name:
        for number, (ranks, strategy, scenario) in enumerate(runs(options)):
            for repeat in range(options.repeats):
                arguments = ["--strategy", strategy, "--steps", str(scenario.steps)]
                directory = Path(name) / f"{number}-{repeat}"
                report = watched(directory, ranks, [*arguments, *scenario.arguments])
                right.append(is_right(report, scenario))
                if scenario.rank is None:
                    named_in_clean.append(bool(named_ranks(report)))
                mark = "right" if right[-1] else "WRONG"
                step = 1e3 * report["step_seconds"]
                print(
                    f"{mark}  {ranks} ranks, {strategy}, {scenario.name}: {found_text(report)} "
                    f"({step:.1f} ms a step)",
                    flush=True,
                )
    print(f"{sum(right)} of {len(right)} right; a rank named in {sum(named_in_clean)} of "
          f"{len(named_in_clean)} runs without a slow one")  # fmt: skip


def measure_cost(options: argparse.Namespace) -> None:
    """Print what the collector costs a rank, by blocks of steps with and without it within one
    process (``watch_cost.py``), and what the command costs beside it."""
    for strategy in options.strategies:
        with tempfile.TemporaryDirectory() as name:
            program = str(PROGRAM.parent / "watch_cost.py")
            arguments = ["--strategy", strategy, "--pairs", str(options.pairs), "-o", name]
            done = _run([*_torchrun(2, program), *arguments], seconds=COST_SECONDS)
            if done.returncode != 0:
                raise RuntimeError(f"{strategy}: {done.stderr[-2000:]}")
            costs = [json.loads((Path(name) / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
            step = _print_cost(strategy, costs)
            share = _command_share(Path(name) / "watched", strategy, step)
        print(f"  the command: {3600 * share / 2:.1f} s of processor time a rank-hour", flush=True)


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
    mean, half = mean_interval([math.log(out[place] / on[place]) for on, out in pairs])
    low, high = (math.exp(mean + sign * (half or 0.0)) for sign in (-1, 1))
    return f"{math.exp(mean):.4f} ({low:.4f} to {high:.4f})"


def _command_share(directory: Path, strategy: str, step_seconds: float) -> float:
    """Processor time that the command takes per second, of a job that has been running for a
    while."""
    steps = str(round((STARTING_SECONDS + COMMAND_SECONDS) / step_seconds))
    watch = [sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", str(directory), "--"]
    job = [*_torchrun(2), "--strategy", strategy, "--steps", steps]
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
    """Find causes, or measure the cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--strategies", nargs="+")
    parser.add_argument("--only", nargs="+", default=[], help="scenarios by name")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--pairs", type=int, default=300)
    options = parser.parse_args()
    if options.strategies is None:
        options.strategies = COST_STRATEGIES if options.cost else STRATEGIES
    if options.cost:
        measure_cost(options)
    else:
        find_causes(options)


if __name__ == "__main__":
    main()
