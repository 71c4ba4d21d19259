"""Does ``torchscale watch`` find the injected cause and its rank in programs of any strategy?

::

    python benchmarks/watch.py                        # two and four ranks, about an hour
    python benchmarks/watch.py --ranks 2 --only none forward
    python benchmarks/watch.py --cost --pairs 20      # throughput with and without

Each run is ``torchscale watch -- torchrun … watched_program.py``. A run is right if the rule of its
cause names its rank (and for a cause that begins or grows says so), and if no rank is named where
none is slow. ``--cost`` alternates runs with and without the collector, and prints the ratio of their
throughputs with the 95 % interval of its mean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchscale.analysis.stats.series import mean_interval

PROGRAM = Path(__file__).resolve().parent / "watched_program.py"
STRATEGIES = ("ddp", "fsdp", "zero", "tensor", "pipeline", "plain")
END_SECONDS = 300
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


def _torchrun(ranks: int) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(ranks), str(PROGRAM)]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=END_SECONDS,
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
    """Print the ratio of throughputs with and without the collector."""
    for strategy in options.strategies:
        logs = []
        with tempfile.TemporaryDirectory() as name:
            for pair in range(options.pairs):
                arguments = ["--strategy", strategy, "--steps", str(options.cost_steps)]
                order = (True, False) if pair % 2 else (False, True)
                seconds = {
                    is_watched: _step_seconds(Path(name) / f"{pair}", arguments, is_watched)
                    for is_watched in order
                }
                logs.append(math.log(seconds[False] / seconds[True]))
        mean, half = mean_interval(logs)
        low, high = (math.exp(mean + sign * (half or 0.0)) for sign in (-1, 1))
        print(
            f"{strategy}: throughput with ÷ without {math.exp(mean):.4f} ({low:.4f} to {high:.4f}), "
            f"{options.pairs} pairs",
            flush=True,
        )


def _step_seconds(directory: Path, arguments: Sequence[str], is_watched: bool) -> float:
    """Mean step that the program itself prints."""
    command = [*_torchrun(2), *arguments]
    if is_watched:
        watch = [sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", str(directory)]
        command = [*watch, "--", *command]
    done = _run(command)
    line = next(line for line in done.stdout.splitlines() if line.endswith("ms a step"))
    return float(line.split()[0]) * 1e-3


def main() -> None:
    """Find causes, or measure the cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--only", nargs="+", default=[], help="scenarios by name")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--cost-steps", type=int, default=600)
    options = parser.parse_args()
    if options.cost:
        measure_cost(options)
    else:
        find_causes(options)


if __name__ == "__main__":
    main()
