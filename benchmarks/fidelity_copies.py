"""Throughput of many models with and without torchscale, and with and without ``launch.malloc:
keep``, each in a process of its own; one rank on one core.

::

    python benchmarks/fidelity_copies.py --rounds 8             # about 15 minutes
    python benchmarks/fidelity_copies.py --rounds 8 --only mlp

One process imports everything; every measurement runs in a copy of it (a fork), as ranks are on
CPUs with
``launch.isolation: group``, so that it has a heap of its own and starts in milliseconds. Each round
measures each way once, in an order that changes from round to round; a ratio is that of one round,
the interval over rounds. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import bare_loop
import family_models
import torch
from fidelity import describe
from fidelity_blocks import training_cell
from fidelity_family import BARE, BARE_KEEPING, MODELS, OURS, OURS_SYSTEM, Case, Outcome

from torchscale.worker.memory.heap import keep_freed_memory
from torchscale.worker.process_group import Ranks
from torchscale.worker.trainer import Trainer

WAYS = (BARE, OURS, OURS_SYSTEM, BARE_KEEPING)
WARMUP_SECONDS = 0.4
MEASURED_SECONDS = 1.2
_ENVIRONMENT = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass
class Totals:
    """Ratios of all models."""

    ours: list[float] = field(default_factory=list)
    system: list[float] = field(default_factory=list)


def main() -> None:
    """Measure every model and print a line for each as soon as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="", help="models whose name contains this")
    arguments = parser.parse_args()
    os.environ.update(_ENVIRONMENT)
    bare_loop.pin(1)
    totals = Totals()
    for case in MODELS:
        if arguments.only in case.name:
            compare(case, arguments.rounds, totals)
    if len(totals.ours) > 1:
        print(f"all {len(totals.ours)} models | {OURS} ÷ {BARE} | {describe(totals.ours)}")
        print(f"all {len(totals.ours)} models | {OURS_SYSTEM} ÷ {BARE} | {describe(totals.system)}")


def compare(case: Case, rounds: int, totals: Totals) -> None:
    """Measure a model in all ways and print its lines."""
    seconds_per_step = in_copy(lambda: probe(case))[0]
    steps = max(5, round(MEASURED_SECONDS / seconds_per_step))
    warmup = max(2, round(WARMUP_SECONDS / seconds_per_step))
    outcomes = {way: Outcome() for way in WAYS}
    for number in range(rounds):
        place = number % len(WAYS)
        for way in (*WAYS[place:], *WAYS[:place]):
            rate, faults = in_copy(lambda way=way: measure(case, way, warmup, steps))  # type: ignore[misc]
            outcomes[way].rates.append(rate)
            outcomes[way].faults.append(faults)
    for way in WAYS[1:]:
        ratios = [
            mine / bare
            for mine, bare in zip(outcomes[way].rates, outcomes[BARE].rates, strict=True)
        ]
        print(f"{case.name} | {way} ÷ {BARE} | {describe(ratios)}", flush=True)
        if way in (OURS, OURS_SYSTEM):
            (totals.ours if way == OURS else totals.system).append(
                statistics.geometric_mean(ratios)
            )
    noise = {
        way: statistics.stdev(outcome.rates) / statistics.fmean(outcome.rates)
        for way, outcome in outcomes.items()
    }
    print(
        f"{case.name} | spread of a process | "
        + ", ".join(f"{way}: {noise[way]:.1%}" for way in WAYS),
        flush=True,
    )
    typical = {way: statistics.median(outcome.faults) for way, outcome in outcomes.items()}
    counts = ", ".join(f"{way}: {typical[way]:,.0f}" for way in WAYS)
    print(f"{case.name} | minor page faults a step | {counts}", flush=True)


def probe(case: Case) -> tuple[float, float]:
    """Seconds of a step of the bare loop, roughly."""
    loop = _bare(case)
    loop.run(3)
    return loop.run(5) / 5, 0.0


def measure(case: Case, way: str, warmup: int, steps: int) -> tuple[float, float]:
    """Samples per second, and minor page faults a step."""
    if way in (OURS, BARE_KEEPING):
        keep_freed_memory()
    run: Callable[[int], float]
    if way in (BARE, BARE_KEEPING):
        run = _bare(case).run
    else:
        workload = argparse.Namespace(
            model=f"family_models:{case.builder}",
            options=dict(case.options),
            image_size=None,
            batch_size=case.batch_size,
            precision=case.precision,
            strategy="none",
            optimizer=case.optimizer,
        )
        trainer = Trainer(training_cell(workload, 1), Ranks(0, 0, 1, torch.device("cpu"), None))

        def run(count: int) -> float:
            return trainer.run_batch(count).batch.seconds

    run(warmup)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds = run(steps)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return case.batch_size * steps / seconds, faults / steps


def in_copy(work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """What ``work`` returns in a copy of this process."""
    receiver, sender = os.pipe()
    copy = os.fork()
    if copy == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            os.write(sender, json.dumps(work()).encode())
            status = 0
        except Exception:  # noqa: BLE001 - the copy must not go on as its parent
            traceback.print_exc()
        os._exit(status)
    os.close(sender)
    with os.fdopen(receiver) as file:
        content = file.read()
    _, ending = os.waitpid(copy, 0)
    if ending:
        raise SystemExit(f"a measurement ended with {os.waitstatus_to_exitcode(ending)}")
    rate, faults = json.loads(content)
    time.sleep(0.05)  # until the kernel has freed what the copy held
    return rate, faults


def _bare(case: Case) -> bare_loop.BareLoop:
    path = f"{family_models.__name__}:{case.builder}"
    return bare_loop.BareLoop.of_builder(
        path, dict(case.options), case.batch_size, case.optimizer, case.precision
    )


if __name__ == "__main__":
    main()
