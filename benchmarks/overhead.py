"""Cost of a launch beyond its steps: wall time of ``torchscale``'s launch ÷ a bare torchrun of the
same steps.

::

    python benchmarks/overhead.py --pairs 8 --ranks 2

Both warm up for the same number of steps and time the same number. The bare script writes one
number; the launch checks the ranks, writes records and digests, and ensures that no process is
left.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fidelity import describe

from torchscale.config.experiment import Experiment
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.machine import detect_machine
from torchscale.launch.run import run_launch
from torchscale.plan.expand import Plan, make_plan
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.state import State

HERE = Path(__file__).resolve().parent
WARMUP_STEPS = 40


def main() -> None:
    """Alternate the two and print the ratio of their wall times."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    print(
        f"tiny-resnet, batch 32 per rank, {WARMUP_STEPS} + {arguments.steps} steps; wall time, "
        "torchscale ÷ bare"
    )
    for world_size in arguments.ranks:
        plan = _plan(world_size, arguments.steps)
        ours, theirs = [], []
        for pair in range(arguments.pairs):
            with tempfile.TemporaryDirectory() as directory:
                if pair % 2:
                    ours.append(_launch(plan, Path(directory)))
                    theirs.append(_bare(world_size, arguments.steps, Path(directory)))
                else:
                    theirs.append(_bare(world_size, arguments.steps, Path(directory)))
                    ours.append(_launch(plan, Path(directory)))
        mean_ours, mean_theirs = sum(ours) / len(ours), sum(theirs) / len(theirs)
        ratios = [mine / bare for mine, bare in zip(ours, theirs, strict=True)]
        means = f"{mean_ours:.2f} s against {mean_theirs:.2f} s"
        print(f"  {world_size} rank{'s' * (world_size > 1)}: {means}; {describe(ratios)}")


def _plan(world_size: int, steps: int) -> Plan:
    experiment = Experiment.model_validate(
        {
            "models": "tiny-resnet",
            "batch_sizes": 32,
            "gpu_counts": world_size,
            "device": "cpu",
            "launch": {"threads_per_rank": 1},
            "benchmark": {
                "measure_steps": steps,
                "warmup_steps": WARMUP_STEPS,
                "warmup_seconds": 0.0,
                "steady_tolerance": 0.99,
            },
        }
    )
    return make_plan(experiment, detect_machine())


def _launch(plan: Plan, directory: Path) -> float:
    cell = plan.to_run[0]
    started = time.perf_counter()
    record = run_launch(
        LaunchTask(
            cell=cell,
            launch=0,
            device="cpu",
            cpu_sets=plan.cpu_sets(cell.world_size),
            threads_per_rank=plan.threads_per_rank,
            started_at=time.time(),
            collective_timeout_seconds=600,
        ),
        directory,
        limits=LaunchLimits(timeout_seconds=600, stall_seconds=300),
        extra_env={},
        stop=StopRequest(),
        on_progress=lambda _: None,
    )
    assert record.state is State.OK, record.reason
    return time.perf_counter() - started


def _bare(world_size: int, steps: int, directory: Path) -> float:
    local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={world_size}"]
    script = [
        str(HERE / "bare_loop.py"),
        str(directory / "bare.json"),
        "--warmup",
        str(WARMUP_STEPS),
    ]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *local,
        *script,
        "--steps",
        str(steps),
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
    }
    started = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
