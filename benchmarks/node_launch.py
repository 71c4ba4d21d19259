"""What a launch over two nodes takes by ``torchscale benchmark`` over the channel, steps of Slurm and
actors of Ray, against a bare two-node torchrun of the same worker and task, and whether all measure
the same.

::

    python benchmarks/node_launch.py --rounds 5
    python benchmarks/node_launch.py --rounds 5 --engines channel,slurm,ray      # as root

Alternating, one launch each in every round, each engine on two network namespaces of its own, a core
each. The bare side starts ``python -m torch.distributed.run`` on both nodes at the same moment and
waits for both; torchscale's side is the time from its order to both nodes until all files of the
launch are where the command runs (``seconds`` of the record). Needs root or user namespaces, and
iproute2.
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
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import node_sweep  # noqa: E402 - beside this file

from tests import network, slurm  # noqa: E402 - of this checkout, which the line above makes importable
from tests.ray_cluster import RayCluster, ray_cluster  # noqa: E402
from tests.slurm import Slurm  # noqa: E402

PORT, BARE_PORT = 29533, 29534
END_SECONDS = 180
MEASURED = {"warmup_steps": 20, "warmup_seconds": 0.1, "measure_steps": 60}
"""A launch of a few seconds with a fixed number of steps: most of it is the start, which is what
may cost more."""


def torchscale_seconds(cluster: network.Cluster, directory: Path) -> tuple[float, Path]:
    """A sweep of one launch; its seconds, and where its files are."""
    config = node_sweep.write_config(directory, **MEASURED)
    running = [node_sweep.start(cluster, node.number, config, PORT) for node in cluster.nodes]
    if [process.wait(END_SECONDS) for process in running] != [0, 0]:
        said = (directory / "n0/output").read_text()
        raise RuntimeError(f"the sweep failed:\n{said}")
    (record,) = (directory / "n0").rglob("record.json")
    return float(json.loads(record.read_text())["seconds"]), record.parent


def bare_seconds(cluster: network.Cluster, launch: Path, directory: Path) -> float:
    """The same task by two torchruns and nothing else."""
    task = json.loads((launch / "task.json").read_text())
    running = []
    begun = time.monotonic()
    for node in cluster.nodes:
        there = directory / node.hostname
        there.mkdir(parents=True)
        here = {**task, "started_at": time.time(), "cpu_sets": [[node.core]]}
        (there / "task.json").write_text(json.dumps(here))
        rendezvous = [
            "--rdzv-backend=static",
            "--nnodes=2",
            f"--node-rank={node.number}",
            f"--master-addr={cluster.nodes[0].address}",
            f"--master-port={BARE_PORT}",
            f"--local-addr={node.address}",
        ]
        rest = [
            "--nproc-per-node=1",
            "--max-restarts=0",
            "-m",
            "torchscale.worker",
            str(there / "task.json"),
        ]
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, *rest]
        running.append(subprocess.Popen(node.argv(*command), env=env, stderr=subprocess.DEVNULL))
    if [process.wait(END_SECONDS) for process in running] != [0, 0]:
        raise RuntimeError("the bare torchruns failed")
    return time.monotonic() - begun


def engine_seconds(engine: str, cluster: Slurm | RayCluster, directory: Path) -> tuple[float, Path]:
    """A sweep of one launch over an engine; its seconds, and where its files are."""
    config = node_sweep.write_config(directory, **MEASURED)
    before = ["salloc", "--nodes=2"] if engine == "slurm" else []
    command = [sys.executable, "-m", "torchscale", "benchmark", str(config)]
    bounds = ["--launch.devices_per_node=1", "--launch.threads_per_rank=1"]
    done = subprocess.run(
        cluster.argv(cluster.nodes[0], *before, *command, *bounds),
        cwd=directory,
        env=cluster.environment,
        capture_output=True,
        timeout=END_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the sweep failed: {done.stderr.decode()}")
    (record,) = directory.rglob("record.json")
    return float(json.loads(record.read_text())["seconds"]), record.parent


def step_seconds(launch: Path) -> float:
    """The mean step of a launch."""
    ranks = json.loads((launch / "record.json").read_text())["payload"]["ranks"]
    batches = [rank["batches"] for rank in ranks]
    return sum(sum(each["seconds"]) for each in batches) / sum(
        sum(each["steps"]) for each in batches
    )


def main() -> None:
    """Print the seconds of all sides, and ratios of their medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", default="channel")
    options = parser.parse_args()
    engines = options.engines.split(",")
    found: dict[str, list[float]] = defaultdict(list)
    steps: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        channel = stack.enter_context(network.cluster(2))
        clusters: dict[str, Slurm | RayCluster] = {}
        if "slurm" in engines:
            clusters["slurm"] = stack.enter_context(slurm.slurm())
        if "ray" in engines:
            clusters["ray"] = stack.enter_context(ray_cluster(pinned=True))
        for number in range(options.rounds):
            launch = directory
            for engine in engines:
                own = directory / f"{number}-{engine}"
                own.mkdir()
                if engine == "channel":
                    seconds, launch = torchscale_seconds(channel, own)
                else:
                    seconds, launch = engine_seconds(engine, clusters[engine], own)
                found[engine].append(seconds)
                steps[engine].append(step_seconds(launch))
            bare = directory / f"{number}-bare"
            found["bare"].append(bare_seconds(channel, launch, bare))
            last = ", ".join(f"{side} {values[-1]:.2f} s" for side, values in found.items())
            print(f"round {number + 1}: {last}", flush=True)
    base = statistics.median(found["bare"])
    print(
        json.dumps(
            {
                "seconds": found,
                "step_seconds": steps,
                "median_minus_bare": {
                    side: round(statistics.median(values) - base, 3)
                    for side, values in found.items()
                },
                "ratio_of_medians": {
                    side: round(statistics.median(values) / base, 3)
                    for side, values in found.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
