"""``torchscale predict`` on shaped links: fitted on one and two network namespaces, held against
three and four.

::

    python benchmarks/prediction_nodes.py                       # results in results/prediction_nodes
    python benchmarks/prediction_nodes.py --rate 100mbit --repeats 5
    python benchmarks/prediction_nodes.py --directory DIR --judge-only

A sweep that was interrupted goes on when the same command is started again.

Each namespace stands for a node with one rank. The compute of a step waits instead of computing
(``scenario_net.py``), so that four ranks on two cores do not slow each other; what is left of real
work, small matrix products and the gradients' way through the kernel, is a few milliseconds.
Gradients are real and go through a link of ``--rate`` in each direction, shaped by a token bucket.
The models differ in gradients per second of compute; with ``--bucket-mb`` below their size,
gradients go in many small messages. All counts run in one sweep, launches interleaved, after the
collectives; the prediction sees a copy of the folder without the counts above two, once with the
collectives and once without. Needs root or user namespaces, and iproute2.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests import network  # noqa: E402 - of this checkout, which the line above makes importable
from torchscale.analysis.training.throughput import samples_per_second  # noqa: E402
from torchscale.schema.cells.kinds import as_kind  # noqa: E402
from torchscale.schema.cells.training import TrainingCell  # noqa: E402
from torchscale.schema.launch.record import payload  # noqa: E402
from torchscale.schema.launch.training import TrainingResult  # noqa: E402
from torchscale.schema.state import State  # noqa: E402
from torchscale.store.run_folder import load_run  # noqa: E402

PORT = 29535
NODES = 4
FITTED = 2
"""Counts up to this are fitted."""
SWEEP_SECONDS = network.HOLD_SECONDS
MODELS = (
    {"seconds": 0.05, "layers": 4, "width": 128},
    {"seconds": 0.05, "layers": 4, "width": 256},
    {"seconds": 0.2, "layers": 6, "width": 384},
)
"""Compute of a step, and gradients of 0.25, 1 and 3.4 MiB."""


def config(repeats: int, bucket_mb: float) -> dict[str, Any]:
    """One rank on each of one to four nodes."""
    return {
        "experiment_name": "run",
        "models": [{"name": "scenario_net:build", **options} for options in MODELS],
        "batch_sizes": [4],
        "measure": ["collectives", "training"],
        "collectives": {"operations": ["all_reduce"], "max_bytes": "1MiB"},
        "parallel": {"strategy": {"name": "ddp", "bucket_cap_mb": bucket_mb}},
        "nodes": list(range(1, NODES + 1)),
        "device": "cpu",
        "launch": {"devices_per_node": 1, "threads_per_rank": 1, "env": {"PYTHONPATH": str(HERE)}},
        "telemetry": {"enabled": False},
        "benchmark": {
            "preset": "quick",
            "warmup_steps": 5,
            "warmup_seconds": 1.0,
            "measure_seconds": 4.0,
        }
        | {"repeats": repeats},
    }


def sweep(directory: Path, rate: str, repeats: int, bucket_mb: float) -> None:
    """Measure every model at every count into ``directory``/n0.

    Raises:
        RuntimeError: a node's command failed.
    """
    file = directory / "config.json"
    file.write_text(json.dumps(config(repeats, bucket_mb)))
    env = {
        **os.environ,
        "TORCHSCALE_TOKEN": "0" * 32,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]),
    }
    with network.cluster(NODES) as cluster:
        for node in cluster.nodes:
            cluster.shape(node, rate)
        running = []
        for node in cluster.nodes:
            master = f"{cluster.nodes[0].address}:{PORT}"
            place = ["--nnodes", str(NODES), "--node-rank", str(node.number), "--master", master]
            there = directory / node.hostname
            there.mkdir(exist_ok=True)
            command = [
                sys.executable,
                "-m",
                "torchscale",
                "--quiet",
                "benchmark",
                str(file),
                *place,
                "-o",
                "run",
                "--rerun",
                "failed",
            ]
            running.append(
                subprocess.Popen(node.argv(*command), cwd=there, env=env, stdout=subprocess.DEVNULL)
            )
        try:
            codes = [process.wait(SWEEP_SECONDS) for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait()
    if codes[0] != 0:
        raise RuntimeError(f"the sweep ended with {codes}")


def judge(run: Path, fitted: Path, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """A line for each model and count that was held out, predicted from cells of these kinds."""
    shutil.rmtree(fitted, ignore_errors=True)
    shutil.copytree(run, fitted)
    file = fitted / "experiment.json"
    content = json.loads(file.read_text())
    content["plan"] = [
        entry
        for entry in content["plan"]
        if entry["cell"]["world_size"] <= FITTED and entry["cell"]["kind"] in kinds
    ]
    file.write_text(json.dumps(content))
    held_out = ",".join(str(count) for count in range(FITTED + 1, NODES + 1))
    command = [
        sys.executable,
        "-m",
        "torchscale",
        "predict",
        "--source",
        str(fitted),
        "--gpus",
        held_out,
        "--json",
    ]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, check=False, timeout=SWEEP_SECONDS
    )
    answer = json.loads(done.stdout)
    if answer["refused"]:
        print(f"refused: {answer['refused']}")
    measured: dict[tuple[float, int], list[float]] = {}
    names: dict[str, float] = {}
    for entry in load_run(run).cells:
        cell = as_kind(entry.planned.cell, TrainingCell)
        if cell is None:
            continue
        results = [
            payload(record, TrainingResult) for record in entry.launches if record.state is State.OK
        ]
        measured[float(cell.model_options["width"]), cell.world_size] = [
            rate for one in results if (rate := samples_per_second(one)) is not None
        ]
    for one in answer["predictions"]:
        names.setdefault(
            one["series"],
            next(width for width, _ in measured if f"width={width:g}" in one["series"]),
        )
    lines = []
    for one in answer["predictions"]:
        rates = measured[names[one["series"]], one["gpus"]]
        rate = statistics.median(rates)
        lines.append(
            {
                "series": one["series"],
                "gpus": one["gpus"],
                "measured": round(rate, 2),
                "predicted": round(one["throughput"], 2),
                "error": round(one["throughput"] / rate - 1, 4),
                "interval": [round(one["low"], 2), round(one["high"], 2)],
                "launches_inside": sum(one["low"] <= value <= one["high"] for value in rates),
                "launches": len(rates),
            }
        )
    return lines


def main() -> None:
    """Print a line for each count held out, and the errors together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=Path("results/prediction_nodes"))
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bucket-mb", type=float, default=25.0, help="of the gradients, in MiB")
    parser.add_argument(
        "--judge-only", action="store_true", help="of the sweep that is in the directory"
    )
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if not arguments.judge_only:
        sweep(directory, arguments.rate, arguments.repeats, arguments.bucket_mb)
    for name, kinds in (
        ("with collectives", ("collectives", "training")),
        ("without", ("training",)),
    ):
        lines = judge(directory / "n0" / "run", directory / "fitted", kinds)
        for line in lines:
            print(f"{name}: {json.dumps(line)}")
        errors = [abs(line["error"]) for line in lines]
        inside, launches = (
            sum(line[key] for line in lines) for key in ("launches_inside", "launches")
        )
        if errors:
            mean, worst = statistics.fmean(errors), max(errors)
            print(
                f"{name}: mean error {mean:.1%}, worst {worst:.1%}; in the interval: "
                f"{inside}/{launches}"
            )


if __name__ == "__main__":
    main()
