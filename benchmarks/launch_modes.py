"""Does the way of a launch show in its throughput? That of each ÷ a torchrun command of its own.

::

    python benchmarks/launch_modes.py --rounds 8            # five models, about 25 minutes
    python benchmarks/launch_modes.py --only "mlp 6" --ways "forks;torchrun"

``forks``: one process that has imported torch forks the agent of every launch. ``group``: one
torchrun whose ranks run all launches. ``forks, new`` and ``group, new``: the first launch of each,
so that nothing is left from the launch before. Every round launches each way once, in random order
(a fixed one, rotated, gave each way the same predecessor, and ratios of 0.96 to 1.03 between equal
ways); a ratio is that of one round, the interval over rounds. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from fidelity import describe
from fidelity_family import HERE, MODELS, Case, experiment_of

from torchscale.launch.agents.elastic import ElasticLauncher
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.launch.group import LaunchGroup
from torchscale.launch.machine import detect_machine
from torchscale.launch.run import run_launch
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State

TORCHRUN = "torchrun"
WAYS = ("forks", "forks, new", "group", "group, new", TORCHRUN)
_NAMES = ("mlp 6 × 512", "convolutions 32", "transformer 128", "gpt2 128", "vit 128")
_TWO_RANKS = ("mlp 6 × 512", "gpt2 128")
_WARMUP_SECONDS, _MEASURED_SECONDS = 1.0, 3.0
_LIMITS = LaunchLimits(timeout_seconds=600, stall_seconds=300)


def main() -> None:
    """Measure every case, and print a line for each way as soon as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--ways", default="", help="of " + "; ".join(WAYS))
    parser.add_argument("--seconds", type=float, default=_MEASURED_SECONDS)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    ways = tuple(arguments.ways.split(";")) if arguments.ways else WAYS
    os.chdir(HERE)  # the model's module is imported from the working directory
    of_all: dict[str, list[float]] = defaultdict(list)
    for case in _cases(arguments.only):
        task = partial(_task, case, arguments.device)
        rates, faults = _measure(case, task, ways, arguments.rounds, arguments.seconds)
        for way in ways:
            if way == TORCHRUN:
                continue
            ratios = [mine / own for mine, own in zip(rates[way], rates[TORCHRUN], strict=True)]
            of_all[way] += ratios
            print(f"{case.title} | {way} ÷ {TORCHRUN} | {describe(ratios)}", flush=True)
        counts = (f"{way}: {statistics.median(faults[way]):,.0f}" for way in ways)
        print(f"{case.title} | minor page faults a step | {', '.join(counts)}", flush=True)
    for way, ratios in of_all.items():
        print(f"all | {way} ÷ {TORCHRUN} | {describe(ratios)}, {len(ratios)} rounds")


def _cases(only: str) -> list[Case]:
    found = [case for case in MODELS if case.name in _NAMES]
    found += [replace(case, ranks=2) for case in found if case.name in _TWO_RANKS]
    return [case for case in found if only in case.title]


def _measure(
    case: Case,
    task_of: Callable[[int, int], LaunchTask],
    ways: tuple[str, ...],
    rounds: int,
    seconds: float,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Samples per second, and minor page faults a step, of each launch of each way."""
    rates: dict[str, list[float]] = {way: [] for way in ways}
    faults: dict[str, list[float]] = {way: [] for way in ways}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rate, _ = _launched(partial(_torchrun, directory), task_of(20, 5))
        per_second = rate / (case.batch_size * case.ranks)
        steps = max(20, 10 * round(seconds * per_second / 10))
        task = task_of(steps, max(5, round(_WARMUP_SECONDS * per_second)))
        forks = ElasticLauncher(directory / "forks")
        stack.callback(forks.close)
        group = LaunchGroup(task, directory / "group", {})
        stack.callback(group.close)
        run: dict[str, Callable[[LaunchTask], LaunchRecord]] = {
            "forks": partial(_forked, forks, directory),
            "forks, new": partial(_forked_anew, directory),
            "group": partial(_grouped, group, directory),
            "group, new": partial(_grouped_anew, directory),
            TORCHRUN: partial(_torchrun, directory),
        }
        for way in ("forks", "group"):  # neither is new in the first round
            if way in ways:
                _launched(run[way], task_of(20, 5))
        for _ in range(rounds):
            for way in random.sample(ways, len(ways)):
                rate, fault = _launched(run[way], task)
                rates[way].append(rate)
                faults[way].append(fault)
    return rates, faults


def _task(case: Case, device: str, steps: int, warmup: int) -> LaunchTask:
    experiment = experiment_of(case, warmup=warmup, steps=steps, malloc="keep", device=device)
    plan = make_plan(experiment, detect_machine())
    return launch_task(plan, plan.to_run[0], _LIMITS)


def _launched(run: Callable[[LaunchTask], LaunchRecord], task: LaunchTask) -> tuple[float, float]:
    record = run(task)
    if record.state is not State.OK or not isinstance(record.payload, TrainingResult):
        raise SystemExit(f"{record.state.value}: {record.reason}")
    ranks = record.payload.ranks
    seconds = max(rank.batches.total_seconds for rank in ranks)
    steps = sum(ranks[0].batches.steps)
    faults = [rank.signals.minor_faults for rank in ranks if rank.signals is not None]
    per_step = max((one.per_step for one in faults if one is not None), default=0.0)
    return steps * task.cell.world_size / seconds, per_step


def _torchrun(directory: Path, task: LaunchTask) -> LaunchRecord:
    return run_launch(
        task,
        Path(tempfile.mkdtemp(dir=directory)),
        limits=_LIMITS,
        extra_env={},
        stop=StopRequest(),
        on_progress=lambda _: None,
    )


def _forked(forks: ElasticLauncher, directory: Path, task: LaunchTask) -> LaunchRecord:
    return forks.run(
        task,
        Path(tempfile.mkdtemp(dir=directory)),
        limits=_LIMITS,
        extra_env={},
        stop=StopRequest(),
        on_progress=lambda _: None,
    )


def _forked_anew(directory: Path, task: LaunchTask) -> LaunchRecord:
    forks = ElasticLauncher(directory / "forks-new")
    try:
        return _forked(forks, directory, task)
    finally:
        forks.close()


def _grouped(group: LaunchGroup, directory: Path, task: LaunchTask) -> LaunchRecord:
    return group.run(
        task,
        Path(tempfile.mkdtemp(dir=directory)),
        limits=_LIMITS,
        stop=StopRequest(),
        on_progress=lambda _: None,
    )


def _grouped_anew(directory: Path, task: LaunchTask) -> LaunchRecord:
    group = LaunchGroup(task, directory / "group-new", {})
    try:
        return _grouped(group, directory, task)
    finally:
        group.close()


if __name__ == "__main__":
    main()
