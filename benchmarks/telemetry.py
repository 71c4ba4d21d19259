"""What telemetry costs: the sampler's processor time, and throughput with it ÷ without, alternating in one process.

::

    python benchmarks/telemetry.py --pairs 15

Blocks of training steps alternate, one with the sampler running beside it and one without, on a core of their own each
as in a sweep; the sampler may run on any. The interval of the ratio is over pairs.
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

from torchscale.launch.machine import detect_machine
from torchscale.launch.process import wait_until
from torchscale.launch.telemetry import READINGS, read_readings, sampling
from torchscale.plan import make_plan
from torchscale.schema.config import Experiment
from torchscale.schema.task import LaunchTask
from torchscale.worker.ranks import joined_ranks
from torchscale.worker.trainer import Trainer

BLOCK_SECONDS = 4.0
INTERVAL_SECONDS = 1.0


def main() -> None:
    """Start the ranks, switch the sampler, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        _as_rank(arguments.pairs)
        return
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory() as directory:
            local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}"]
            subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", *local, __file__, "--pairs", str(arguments.pairs)],
                check=True,
                timeout=3600,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCHSCALE_OUT": directory},
            )
            found = json.loads((Path(directory) / "out.json").read_text())
        print(f"tiny-resnet, batch 32, {ranks} gloo rank{'s' * (ranks > 1)}, a reading every {INTERVAL_SECONDS:g} s")
        print(f"  throughput with ÷ without: {describe(found['ratios'])}")
        share = sum(found["cpu_seconds"]) / sum(found["wall_seconds"])
        print(f"  the sampler's processor time, start-up included: {share:.2%} of a core", flush=True)


def _as_rank(pairs: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    out = Path(os.environ["TORCHSCALE_OUT"])
    cores = sorted(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    content = {"models": "tiny-resnet", "batch_sizes": 32, "gpu_counts": world_size, "device": "cpu"}
    cell = make_plan(Experiment.model_validate(content), detect_machine()).training[0]
    task = LaunchTask(
        cell=cell, launch=0, device="cpu", threads_per_rank=1, started_at=time.time(), collective_timeout_seconds=600
    )
    ratios, cpu_seconds, wall_seconds = [], [], []
    with joined_ranks(task) as ranks:
        trainer = Trainer(cell, ranks)
        trainer.run_batch(20)
        steps = int(ranks.agree(max(10, BLOCK_SECONDS / trainer.run_batch(20).batch.seconds * 20)))
        for pair in range(pairs):
            seconds = {}
            for sampled in (True, False) if pair % 2 else (False, True):
                directory = out / f"{pair}-{sampled}"
                if rank == 0:
                    directory.mkdir()
                os.sched_setaffinity(0, set(cores))  # the sampler may run anywhere
                began = time.perf_counter()
                with sampling(directory, INTERVAL_SECONDS if sampled and rank == 0 else None, ()):
                    os.sched_setaffinity(0, {cores[rank % len(cores)]})
                    if sampled and rank == 0:
                        wait_until((directory / READINGS).exists, timeout_seconds=30)
                    seconds[sampled] = trainer.run_batch(steps).batch.seconds
                if sampled and rank == 0:
                    used = read_readings(directory)[1]
                    if used is not None:
                        cpu_seconds.append(used)
                        wall_seconds.append(time.perf_counter() - began)
            worst = torch.tensor([seconds[True], seconds[False]], dtype=torch.float64)
            if world_size > 1:
                dist.all_reduce(worst, op=dist.ReduceOp.MAX)
            ratios.append(float(worst[1] / worst[0]))
    if rank == 0:
        content = {"ratios": ratios, "cpu_seconds": cpu_seconds, "wall_seconds": wall_seconds}
        (out / "out.json").write_text(json.dumps(content))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
