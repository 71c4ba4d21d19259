"""Cost of the signals of every launch: throughput with and without them, alternating in one
process; processor time.

::

    python benchmarks/signals.py --processes 5 --pairs 15

Blocks of steps with the marks of gradient synchronization alternate with blocks without, on two
gloo ranks. The ratio is of rank 0's block times; the interval is over processes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from fidelity import describe

from torchscale.config.experiment import Experiment
from torchscale.launch.machine import detect_machine
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.processes.subprocesses import adopt_orphans
from torchscale.worker.measure.phases import Phase
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.trainer import Trainer

STEPS = 40
CALLS = 20_000


def main() -> None:
    """Start the processes, or run as a rank."""
    if "RANK" in os.environ:
        as_rank(
            LaunchTask.model_validate_json(Path(sys.argv[1]).read_text()),
            int(sys.argv[2]),
            Path(sys.argv[3]),
        )
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--model", default="tiny-resnet")
    arguments = parser.parse_args()
    adopt_orphans()
    ratios, shares, windows, steps = [], [], [], []
    for _ in range(arguments.processes):
        found = _process(arguments.model, arguments.pairs)
        ratios.append(found["ratio"])
        shares.append(found["processor_share"])
        windows.append(found["window_seconds"])
        steps.append(found["step_seconds"])
    print(f"{arguments.model}, batch 32 per rank, 2 ranks, blocks of {STEPS} steps")
    print(f"  throughput with ÷ without the signals: {describe(ratios)}")
    print(
        f"  processor time of the marks: {max(shares):.4%} of a step of "
        f"{statistics.fmean(steps) * 1e3:.1f} ms"
    )
    print(
        "  a window of 6 passes without synchronization, including discarded passes: "
        f"{statistics.fmean(windows):.2f} s"
    )


def _process(model: str, pairs: int) -> dict[str, float]:
    experiment = Experiment.model_validate(
        {"models": model, "batch_sizes": 32, "gpu_counts": 2, "device": "cpu"}
    )
    plan = make_plan(experiment, detect_machine())
    task = LaunchTask(
        cell=plan.cells[0].cell,
        launch=0,
        device="cpu",
        cpu_sets=plan.cpu_sets(2),
        threads_per_rank=plan.threads_per_rank,
        started_at=time.time(),
        collective_timeout_seconds=600,
    )
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "task.json").write_text(task.model_dump_json())
        subprocess.run(
            [
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
                "--nproc-per-node=2", f"--log-dir={directory / 'logs'}", "--redirects=3", __file__,
                str(directory / "task.json"), str(pairs), str(directory / "out.json"),
            ],
            check=True,
            timeout=1200,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )  # fmt: skip
        found: dict[str, float] = json.loads((directory / "out.json").read_text())
        return found


def as_rank(task: LaunchTask, pairs: int, output: Path) -> None:
    """Alternate the blocks and write the times of rank 0."""
    rank = int(os.environ["RANK"])
    if task.cpu_sets is not None:
        os.sched_setaffinity(0, task.cpu_sets[rank])
    torch.set_num_threads(task.threads_per_rank)
    with joined_ranks(task) as ranks:
        assert isinstance(task.cell, TrainingCell)
        trainer = Trainer(task.cell, ranks)
        trainer.run_batch(1)
        trainer.run_batch(STEPS)
        watch = trainer.watch
        assert watch is not None
        times: dict[bool, list[float]] = {True: [], False: []}
        for pair in range(pairs):
            for marked in (True, False) if pair % 2 else (False, True):
                watch.stop()
                if marked:
                    watch.start()
                times[marked].append(trainer.run_batch(STEPS).batch.seconds)
        watch.start()
        window = trainer.run_unsynchronized(6)
        assert window is not None
        step_seconds = statistics.fmean(times[True]) / STEPS
        began = time.process_time()
        for _ in range(CALLS):
            trainer.marks.mark(Phase.GRADIENTS, Phase.SYNC)
        each = (time.process_time() - began) / CALLS
        trainer.clear_marks()
        logs = [
            math.log(without / with_)
            for with_, without in zip(times[True], times[False], strict=True)
        ]
        if rank == 0:
            result = {
                "ratio": math.exp(statistics.fmean(logs)),
                "processor_share": 2 * each / step_seconds,
                "window_seconds": window.wall_seconds,
                "step_seconds": step_seconds,
            }
            output.write_text(json.dumps(result))
        ranks.barrier()
        trainer.close()
        del watch
    os._exit(0)


if __name__ == "__main__":
    main()
