"""Predicted against measured throughput on real runs over several nodes, which are network namespaces of this machine.

::

    PYTHONPATH=. python benchmarks/prediction_nodes.py --rate 100mbit --models tiny-decoder,tiny-resnet,tiny-bert

Each node has a rank and a link that is shaped to ``--rate``. Every model is measured on 1, 2, 3 and 4 nodes, three
launches each, unless told otherwise; the law is fitted to the runs of up to ``--fitted`` and predicts the others. Nodes
share the cores of this machine: choose a rate at which the network takes most of the step, or computing slows down with
more nodes than cores, which no law of a network describes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import network
from torchscale.analysis.prediction.predict import predict_series
from torchscale.analysis.prediction.series import make_series
from torchscale.results.reader import read_summary
from torchscale.run.predict import run_series

NODES = 4
PORT = 29518
SWEEP_SECONDS = 1800


def main() -> None:
    """Measure, predict, print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--models", default="tiny-decoder,tiny-resnet,tiny-bert")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--nodes", default="1,2,3,4", help="counts of nodes to measure")
    parser.add_argument("--fitted", type=int, default=2, help="the largest count of nodes that the law is fitted to")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of measurement in each launch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, network.cluster(NODES) as cluster:
        config = Path(directory) / "config.json"
        config.write_text(json.dumps(_experiment(arguments)))
        for node in cluster.nodes:
            cluster.shape(node, arguments.rate)
        _measure(cluster, config, Path(directory))
        _print(Path(directory) / "n0" / "results" / "nodes", arguments.fitted)


def _experiment(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "experiment_name": "nodes",
        "models": arguments.models.split(","),
        "batch_sizes": [arguments.batch_size],
        "nodes": [int(count) for count in arguments.nodes.split(",")],
        "device": "cpu",
        "launch": {"devices_per_node": 1},
        "benchmark": {
            "repeats": arguments.repeats,
            "warmup_steps": 3,
            "warmup_seconds": 0.5,
            "measure_seconds": arguments.seconds,
        },
    }


def _measure(cluster: network.Cluster, config: Path, directory: Path) -> None:
    """Run the sweep on every node to its end."""
    running = []
    for node in cluster.nodes:
        here = directory / node.hostname
        (here / "tmp").mkdir(parents=True)
        master = f"{cluster.nodes[0].address}:{PORT}"
        options = ["--nnodes", str(NODES), "--node-rank", str(node.number), "--master", master]
        argv = [sys.executable, "-m", "torchscale", "benchmark", str(config), *options]
        env = {**os.environ, "TORCHSCALE_TOKEN": "of this benchmark", "TMPDIR": str(here / "tmp")}
        output = None if node.number == 0 else subprocess.DEVNULL
        running.append(subprocess.Popen(node.argv(*argv), cwd=here, env=env, stdout=output, stderr=output))
    try:
        for process in running:
            process.wait(timeout=SWEEP_SECONDS)
    finally:
        for process in running:
            process.kill()
            process.wait()


def _print(folder: Path, fitted: int) -> None:
    print("| model | nodes | measured | predicted | error | 90 % interval | inside |\n|---|---|---|---|---|---|---|")
    for series in run_series(read_summary(folder)):
        known = [point for point in series.points if point.nodes <= fitted]
        held = [point for point in series.points if point.nodes > fitted]
        outcome = predict_series(make_series(series.name, known, gpus_per_node=1), [point.gpus for point in held])
        for reason in outcome.refusals:
            print(f"| {series.name} | | | refused: {reason} | | | |")
        for one, point in zip(outcome.predictions, held, strict=False):
            inside = "yes" if one.low <= point.throughput <= one.high else "no"
            error = one.throughput / point.throughput - 1
            print(
                f"| {series.name} | {point.nodes} | {point.throughput:.1f} | {one.throughput:.1f} | {error:+.1%} | "
                f"{one.low:.1f} to {one.high:.1f} | {inside} |"
            )
        costs = ", ".join(f"{point.cost / known[0].cost:.2f}" for point in series.points)
        print(f"\n{series.name}: cost per sample relative to one node: {costs}\n")


if __name__ == "__main__":
    main()
