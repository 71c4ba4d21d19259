"""Throughput of many models as torchscale reports it ÷ that of a bare torchrun, in separate
processes that alternate.

::

    python benchmarks/fidelity_family.py                                  # blocks in processes, about 25 minutes
    python benchmarks/fidelity_family.py --launches 4                     # separate processes, about 30 minutes
    python benchmarks/fidelity_family.py --launches 8 --only mlp --heap   # and with glibc's default heap
    python benchmarks/fidelity_family.py --twins --only mlp               # two equal bare loops, by setting of the heap
    python benchmarks/fidelity_family.py --same --only mlp                # one bare loop, compared with itself

Blocks: as in ``fidelity.py``, both loops in each process, interval over processes. Launches: each
round measures each way once, in an order that changes from round to round; a ratio is that of one
round, the interval over rounds. ``--heap`` adds torchscale with ``launch.malloc: system`` and a
bare loop with a heap that keeps memory; minor page faults a step are counted on all. Run it on a
quiet machine.
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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fidelity import describe

from torchscale.analysis.diagnosis.rules_device import KEEPING
from torchscale.config.experiment import Experiment
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.launch.machine import detect_machine
from torchscale.launch.run import run_launch
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State

HERE = Path(__file__).resolve().parent
OURS, BARE, OURS_SYSTEM, BARE_KEEPING = (
    "torchscale",
    "bare",
    "torchscale, malloc: system",
    "bare, memory kept",
)
MEASURED_SECONDS = 3.0
WARMUP_SECONDS = 1.0
BLOCK_SECONDS = 0.35
"""Short, so that a slow spell of the machine hits both blocks of a pair; long against the write
after each block."""


@dataclass(frozen=True)
class Case:
    """A model with its options, as both sides run it."""

    name: str
    builder: str
    batch_size: int
    options: Mapping[str, int | bool] = field(default_factory=dict)
    precision: str = "fp32"
    ranks: int = 1
    optimizer: str = "adamw"

    @property
    def title(self) -> str:
        """A row of the table."""
        return (
            f"{self.name}, batch {self.batch_size}, {self.precision}, {self.ranks} "
            f"rank{'s' * (self.ranks > 1)}"
        )


MODELS = (
    Case("mlp 6 × 512", "mlp", 64, optimizer="sgd"),
    Case("mlp 2 × 2048", "mlp", 128, {"width": 2048, "depth": 2}, optimizer="sgd"),
    Case("mlp 24 × 128", "mlp", 64, {"width": 128, "depth": 24}),
    Case("convolutions 32", "convolutions", 16),
    Case("convolutions 64", "convolutions", 8, {"width": 64, "size": 48}),
    Case("depthwise 64", "convolutions", 16, {"width": 64, "depthwise": True}),
    Case("transformer 128", "transformer", 16),
    Case("transformer 256", "transformer", 8, {"width": 256, "length": 128}),
    Case("lstm 128", "lstm", 32),
    Case("recommender 20k", "recommender", 256),
    Case("gpt2 128", "gpt2", 8),
    Case("bert 128", "bert", 8),
    Case("t5 128", "t5", 8),
    Case("vit 128", "vit", 16),
)
_BF16 = ("mlp 2 × 2048", "convolutions 32", "transformer 128", "gpt2 128")
_TWO_RANKS = (
    "mlp 6 × 512",
    "convolutions 32",
    "transformer 128",
    "recommender 20k",
    "gpt2 128",
    "vit 128",
)


@dataclass
class Outcome:
    """Samples per second, and minor page faults a step, of each launch."""

    rates: list[float] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)


def cases(only: str) -> list[Case]:
    """Every model in fp32 on one rank, some also in bf16 and on two."""
    with_names = [
        *MODELS,
        *(_with(case, precision="bf16") for case in MODELS if case.name in _BF16),
        *(_with(case, ranks=2) for case in MODELS if case.name in _TWO_RANKS),
    ]
    return [case for case in with_names if only in case.title]


def _with(case: Case, precision: str = "fp32", ranks: int = 1) -> Case:
    return Case(
        case.name, case.builder, case.batch_size, case.options, precision, ranks, case.optimizer
    )


def main() -> None:
    """Measure every case and print a line for each as soon as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--launches", type=int, metavar="ROUNDS", help="compare separate processes, this often"
    )
    parser.add_argument("--processes", type=int, default=5, help="of blocks")
    parser.add_argument("--pairs", type=int, default=15, help="of blocks in a process")
    parser.add_argument(
        "--twins", action="store_true", help="blocks of two bare loops: what noise alone gives"
    )
    parser.add_argument(
        "--same", action="store_true", help="blocks of one bare loop: the error of the method"
    )
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument(
        "--heap", action="store_true", help="also with the other setting of the heap on each side"
    )
    arguments = parser.parse_args()
    ways = (OURS, BARE, OURS_SYSTEM, BARE_KEEPING) if arguments.heap else (OURS, BARE)
    os.chdir(HERE)  # the model's module is imported from the working directory
    for case in cases(arguments.only):
        if arguments.launches is None:
            for malloc in ("keep", "system") if arguments.twins else ("keep",):
                more = [
                    "--malloc",
                    malloc,
                    *(["--twins"] if arguments.twins else ["--same"] if arguments.same else []),
                ]
                found = _blocks(case, arguments.processes, arguments.pairs, more)
                what = "one bare loop" if arguments.same else "blocks"
                what = f"two bare loops, malloc: {malloc}" if arguments.twins else what
                print(f"{case.title} | {what} | {found}", flush=True)
            continue
        outcomes = measure(case, ways, arguments.launches)
        reference = outcomes[BARE]
        for way in ways:
            if way == BARE:
                continue
            ratios = [
                mine / bare for mine, bare in zip(outcomes[way].rates, reference.rates, strict=True)
            ]
            print(f"{case.title} | {way} ÷ bare | {describe(ratios)}", flush=True)
        print(
            f"{case.title} | minor page faults a step | "
            + ", ".join(
                f"{way}: {statistics.median(outcome.faults):,.0f}"
                for way, outcome in outcomes.items()
            ),
            flush=True,
        )


def measure(case: Case, ways: tuple[str, ...], rounds: int) -> dict[str, Outcome]:
    """Rounds of launches, the first way of a round being another one each time."""
    outcomes = {way: Outcome() for way in ways}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        rate, _ = _bare(case, directory, warmup=5, steps=20, keeping=False)
        per_second = rate / (case.batch_size * case.ranks)
        steps = max(20, 10 * round(MEASURED_SECONDS * per_second / 10))
        warmup = max(5, round(WARMUP_SECONDS * per_second))
        for number in range(rounds):
            place = number % len(ways)
            for way in (*ways[place:], *ways[:place]):
                if way in (BARE, BARE_KEEPING):
                    rate, faults = _bare(
                        case, directory, warmup=warmup, steps=steps, keeping=way == BARE_KEEPING
                    )
                else:
                    malloc = "system" if way == OURS_SYSTEM else "keep"
                    rate, faults = _ours(case, directory, warmup=warmup, steps=steps, malloc=malloc)
                outcomes[way].rates.append(rate)
                outcomes[way].faults.append(faults)
    return outcomes


def _blocks(case: Case, processes: int, pairs: int, more: list[str]) -> str:
    """The interval over the mean ratios of processes in which both loops take turns."""
    means, rejected = [], 0
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as name:
            out = Path(name) / "ratios.json"
            command = [
                *_torchrun(case),
                str(HERE / "fidelity_blocks.py"),
                str(out),
                *_workload(case),
            ]
            command += ["--pairs", str(pairs), "--block-seconds", str(BLOCK_SECONDS), *more]
            subprocess.run(command, check=True, env=_environment(), timeout=600)
            content = json.loads(out.read_text())
        means.append(statistics.geometric_mean(content["ratios"]))
        rejected += content["rejected"]
    return f"{describe(means)}, {processes} processes of {pairs} pairs, {rejected} measured again"


def _torchrun(case: Case) -> list[str]:
    local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={case.ranks}"]
    return [sys.executable, "-m", "torch.distributed.run", *local]


def _workload(case: Case) -> list[str]:
    """Options of the scripts, for this model."""
    script = [
        "--model",
        f"family_models:{case.builder}",
        "--options",
        json.dumps(dict(case.options)),
    ]
    return [
        *script,
        *f"--precision {case.precision} --optimizer {case.optimizer} --batch-size "
        f"{case.batch_size}".split(),
    ]


def _environment(**settings: str) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        **settings,
    }


def experiment_of(
    case: Case, *, warmup: int, steps: int, malloc: str, device: str = "cpu"
) -> Experiment:
    """A config with the one cell of a case, measured for so many steps."""
    return Experiment.model_validate(
        {
            "models": [{"name": f"family_models:{case.builder}", **case.options}],
            "batch_sizes": case.batch_size,
            "gpu_counts": case.ranks,
            "device": device,
            "training": {"optimizer": case.optimizer, "precision": case.precision},
            "launch": {"threads_per_rank": 1, "malloc": malloc},
            "benchmark": {
                "measure_steps": steps,
                "warmup_steps": warmup,
                "warmup_seconds": 0.0,
                "steady_tolerance": 0.99,
            },
        }
    )


def _ours(
    case: Case, directory: Path, *, warmup: int, steps: int, malloc: str
) -> tuple[float, float]:
    """A launch of torchscale."""
    experiment = experiment_of(case, warmup=warmup, steps=steps, malloc=malloc)
    plan = make_plan(experiment, detect_machine())
    limits = LaunchLimits(timeout_seconds=600, stall_seconds=300)
    with tempfile.TemporaryDirectory(dir=directory) as name:
        record = run_launch(
            launch_task(plan, plan.to_run[0], limits),
            Path(name),
            limits=limits,
            extra_env={},
            stop=StopRequest(),
            on_progress=lambda _: None,
        )
    if record.state is not State.OK or not isinstance(record.payload, TrainingResult):
        raise SystemExit(f"{case.title}: {record.state.value}: {record.reason}")
    ranks = record.payload.ranks
    seconds = max(rank.batches.total_seconds for rank in ranks)
    faults = [rank.signals.minor_faults for rank in ranks if rank.signals is not None]
    return case.batch_size * case.ranks * steps / seconds, max(
        item.per_step for item in faults if item is not None
    )


def _bare(
    case: Case, directory: Path, *, warmup: int, steps: int, keeping: bool
) -> tuple[float, float]:
    """A torchrun of the bare script."""
    out = directory / f"bare-{time.monotonic_ns()}.json"
    script = [
        str(HERE / "bare_loop.py"),
        str(out),
        *_workload(case),
        "--warmup",
        str(warmup),
        "--steps",
        str(steps),
    ]
    settings = dict(item.split("=") for item in KEEPING.split()) if keeping else {}
    command, environment = [*_torchrun(case), *script], _environment(**settings)
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL, timeout=600)
    content = json.loads(out.read_text())
    return float(content["samples_per_second"]), float(content["minor_faults_per_step"])


if __name__ == "__main__":
    main()
