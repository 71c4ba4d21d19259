"""Time of collectives: ``measure collectives`` ÷ a bare loop of ``torch.distributed`` calls, in one
run, at every size.

::

    python benchmarks/collectives.py --pairs 15 --ranks 2

At each size the two alternate within the same processes, with equal numbers of warm-up and timed
calls, on the same backend. The ratio is torchscale's mean time of a call ÷ the bare loop's; the
interval is over pairs.
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

from torchscale.config.choices import Operation
from torchscale.schema.cells.collectives import CollectivesCell
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.units import format_bytes, format_seconds
from torchscale.worker.machine.collectives import measure_collectives
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.rank_files import RankFiles

WARMUP = 5
SIZES = tuple(1024 << power for power in range(17))


def main() -> None:
    """Start the ranks and print the results of rank 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--operation", choices=("all_reduce", "all_gather", "broadcast"), default="all_reduce"
    )
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        _as_rank(arguments.pairs, arguments.operation)
        return
    with tempfile.TemporaryDirectory() as directory:
        local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={arguments.ranks}"]
        options = ["--pairs", str(arguments.pairs), "--operation", arguments.operation]
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", *local, __file__, *options],
            check=True,
            timeout=3600,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "TORCHSCALE_OUT": directory,
            },
        )
        found: dict[str, list[list[float]]] = json.loads((Path(directory) / "out.json").read_text())
    print(
        f"{arguments.operation} fp32 on {arguments.ranks} gloo ranks; time of a call, torchscale "
        "÷ bare"
    )
    for size, pairs in found.items():
        ours, theirs = (sum(values) / len(values) for values in zip(*pairs, strict=True))
        ratios = [mine / bare for mine, bare in pairs]
        means = f"{format_seconds(ours)} against {format_seconds(theirs)}"
        print(f"  {format_bytes(int(size)):>9}: {means:>24}; {describe(ratios)}", flush=True)


def _as_rank(pairs: int, operation: Operation) -> None:
    """Alternate the two at every size; both use the mean over ranks."""
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    directory = Path(os.environ["TORCHSCALE_OUT"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    found: dict[int, list[list[float]]] = {size: [] for size in SIZES}
    for size in SIZES:
        cell = CollectivesCell(
            operations=(operation,),
            dtypes=("fp32",),
            min_bytes=size,
            max_bytes=size,
            iterations=_calls(size),
            warmup=WARMUP,
            world_size=world_size,
            device="cpu",
        )
        task = LaunchTask(
            cell=cell,
            launch=0,
            device="cpu",
            threads_per_rank=1,
            started_at=time.time(),
            collective_timeout_seconds=600,
        )
        with joined_ranks(task, f"size-{size}") as ranks:
            for pair in range(pairs):
                both: dict[str, float] = {}
                for which in ("ours", "bare") if pair % 2 else ("bare", "ours"):
                    if which == "ours":
                        record = measure_collectives(task, cell, ranks, RankFiles(directory, rank))
                        both[which] = record.samples[0].mean_seconds
                    else:
                        both[which] = _bare(operation, size, world_size)
                times = torch.tensor([both["ours"], both["bare"]], dtype=torch.float64)
                dist.all_reduce(times)
                found[size].append((times / world_size).tolist())
    if rank == 0:
        (directory / "out.json").write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def _bare(operation: str, size: int, world_size: int) -> float:
    """The usual hand-written measurement: a buffer, some warm-up calls, a barrier, a timed loop."""
    buffer = torch.zeros(size // 4)
    part = torch.zeros(size // 4 // world_size)

    def call() -> None:
        if operation == "all_reduce":
            dist.all_reduce(buffer)
        elif operation == "broadcast":
            dist.broadcast(buffer, src=0)
        else:
            dist.all_gather_into_tensor(buffer, part)

    for _ in range(WARMUP):
        call()
    dist.barrier()
    started = time.perf_counter()
    for _ in range(_calls(size)):
        call()
    return (time.perf_counter() - started) / _calls(size)


def _calls(size: int) -> int:
    """More calls for small sizes, where one scheduler pause takes as long as many calls."""
    return 300 if size <= 1 << 20 else 20


if __name__ == "__main__":
    main()
