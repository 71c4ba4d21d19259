"""Cost of telemetry: processor time of the sampler, and throughput with ÷ without it, alternating
in one process.

::

    python benchmarks/telemetry.py --pairs 15

Blocks of training steps with the sampler running alternate with blocks without, each rank on its
own core as in a sweep. The sampler may run on any core and is started by a process that does not
train (a fork would slow the rank that makes it). The interval of the ratio is over pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from fidelity import describe

from torchscale.config.experiment import Experiment
from torchscale.launch.machine import detect_machine
from torchscale.launch.telemetry import READINGS, read_readings, sampling
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.processes.subprocesses import wait_until
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.trainer import Trainer

BLOCK_SECONDS = 4.0
INTERVAL_SECONDS = 1.0


def main() -> None:
    """Start the ranks, switch the sampler on and off, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        _as_rank(arguments.pairs)
        return
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory() as directory:
            cpu_seconds, wall_seconds = _serve(Path(directory), ranks, arguments.pairs)
            ratios = json.loads((Path(directory) / "out.json").read_text())
        print(
            f"tiny-resnet, batch 32, {ranks} gloo rank{'s' * (ranks > 1)}, a reading every "
            f"{INTERVAL_SECONDS:g} s"
        )
        print(f"  throughput with ÷ without: {describe(ratios)}")
        print(
            f"  processor time of the sampler: {cpu_seconds / arguments.pairs * 1e3:.0f} ms per "
            "launch of ",
            end="",
        )
        print(f"{wall_seconds / arguments.pairs:.1f} s, start-up included", flush=True)


def _serve(directory: Path, ranks: int, pairs: int) -> tuple[float, float]:
    """Run the ranks, and the sampler when rank 0 requests it; returns its processor time and its
    run time."""
    local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *local, __file__, "--pairs", str(pairs)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCHSCALE_OUT": str(directory),
        },
    )
    cpu_seconds = wall_seconds = 0.0
    for pair in range(pairs):
        here = directory / str(pair)
        here.mkdir()
        _wait_for(here / "start", process)
        began = time.perf_counter()
        with sampling(here, INTERVAL_SECONDS, ()):
            _wait_for(here / "stop", process)
        wall_seconds += time.perf_counter() - began
        cpu_seconds += read_readings(here)[1] or 0.0
        (here / "done").touch()
    if process.wait(timeout=300) != 0:
        raise SystemExit("a rank failed")
    return cpu_seconds, wall_seconds


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the ranks have written the file or have ended."""
    wait_until(lambda: path.exists() or process.poll() is not None, timeout_seconds=300)


def _as_rank(pairs: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    out = Path(os.environ["TORCHSCALE_OUT"])
    cores = sorted(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    content = {
        "models": "tiny-resnet",
        "batch_sizes": 32,
        "gpu_counts": world_size,
        "device": "cpu",
    }
    cell = make_plan(Experiment.model_validate(content), detect_machine()).training[0]
    task = LaunchTask(
        cell=cell,
        launch=0,
        device="cpu",
        threads_per_rank=1,
        started_at=time.time(),
        collective_timeout_seconds=600,
    )
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    ratios = []
    with joined_ranks(task) as ranks:
        trainer = Trainer(cell, ranks)
        trainer.run_batch(20)
        steps = int(
            ranks.broadcast_scalar(
                max(10, BLOCK_SECONDS / trainer.run_batch(20).batch.seconds * 20)
            )
        )
        for pair in range(pairs):
            seconds = {}
            for sampled in (True, False) if pair % 2 else (False, True):
                here = out / str(pair)
                if sampled and rank == 0:
                    wait_until(here.exists, timeout_seconds=300)
                    (here / "start").touch()
                    wait_until((here / READINGS).exists, timeout_seconds=300)
                seconds[sampled] = trainer.run_batch(
                    steps
                ).batch.seconds  # the ranks wait for each other first
                if sampled and rank == 0:
                    (here / "stop").touch()
                    wait_until((here / "done").exists, timeout_seconds=300)
            worst = torch.tensor([seconds[True], seconds[False]], dtype=torch.float64)
            if world_size > 1:
                dist.all_reduce(worst, op=dist.ReduceOp.MAX)
            ratios.append(float(worst[1] / worst[0]))
    if rank == 0:
        (out / "out.json").write_text(json.dumps(ratios))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
