"""A sweep of one launch over the nodes of a cluster of network namespaces, for benchmarks of what
surrounds the launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests import network

TOKEN = os.urandom(32).hex()


def write_config(directory: Path, **benchmark: float) -> Path:
    """A config of one cell of two ranks, with these settings of its measurement."""
    path = directory / "config.json"
    content = {
        "experiment_name": "run",
        "models": ["tiny-decoder"],
        "batch_sizes": [4],
        "gpu_counts": [2],
        "device": "cpu",
        "telemetry": {"enabled": False},
        "benchmark": {"preset": "quick", **benchmark},
    }
    path.write_text(json.dumps(content))
    return path


def start(
    cluster: network.Cluster, number: int, config: Path, port: int, within: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start the sweep on node ``number``, in a new directory of its host name beside ``config``,
    where ``output`` is what it prints.

    Args:
        cluster: The nodes, all of which take part.
        number: Of the node.
        config: Of the sweep.
        port: Of the first node.
        within: A command that runs the one which follows it, as ``env`` does.
    """
    node = cluster.nodes[number]
    directory = config.parent / node.hostname
    directory.mkdir()
    place = ["--nnodes", str(len(cluster.nodes)), "--node-rank", str(number)]
    place += ["--master", f"{cluster.nodes[0].address}:{port}"]
    command = [sys.executable, "-m", "torchscale", "benchmark", str(config), *place]
    with (directory / "output").open("wb") as output:
        return subprocess.Popen(
            node.argv(*within, *command),
            cwd=directory,
            env={**os.environ, "TORCHSCALE_TOKEN": TOKEN},
            stdout=output,
            stderr=output,
        )
