"""What a launch over two nodes takes by ``torchscale benchmark``, against a bare two-node torchrun
of the same worker and task in the same two network namespaces.

::

    python benchmarks/node_launch.py --rounds 5

Alternating, one launch each in every round. The bare side starts ``python -m
torch.distributed.run`` on both nodes at the same moment and waits for both; torchscale's side is
the time from its order to both nodes until all files of the launch are on the first one
(``seconds`` of the record). Needs root or user namespaces, and iproute2.
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import node_sweep  # noqa: E402 - beside this file

from tests import network  # noqa: E402 - of this checkout, which the line above makes importable

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
        raise RuntimeError("the sweep failed")
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


def main() -> None:
    """Print the seconds of both sides and the ratio of their medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    ours, bare = [], []
    with network.cluster(2) as cluster, tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            directory = Path(name) / str(number)
            (directory / "sweep").mkdir(parents=True)
            seconds, launch = torchscale_seconds(cluster, directory / "sweep")
            ours.append(seconds)
            bare.append(bare_seconds(cluster, launch, directory / "bare"))
            print(
                f"round {number + 1}: torchscale {ours[-1]:.2f} s, bare {bare[-1]:.2f} s",
                flush=True,
            )
    ratio = statistics.median(ours) / statistics.median(bare)
    print(
        json.dumps(
            {"torchscale_seconds": ours, "bare_seconds": bare, "ratio_of_medians": round(ratio, 3)}
        )
    )


if __name__ == "__main__":
    main()
