"""Does torchscale report the throughput of a bare loop? Ratios of throughput, torchscale ÷ bare,
with 95 % intervals.

Two methods, both paired and alternating in one run::

    python benchmarks/fidelity.py                      # blocks inside processes: precise, cost of measuring
    python benchmarks/fidelity.py --launches --pairs 8 # complete launches: coarse, includes all around the loop
    python benchmarks/fidelity.py --model tiny-decoder --strategy pipeline --ranks 2 --batch-size 8

Blocks are compared within a process, and the interval is over the processes' means. A pair of
blocks is measured again if other processes used more than ``--max-foreign`` of its cores' time; the
number of such pairs is printed. Run it on a quiet machine.
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
from collections.abc import Sequence
from pathlib import Path

from torchscale.analysis.stats.series import student_t_quantile

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Measure at each world size and print one line for each."""
    arguments = _parse()
    way = "launches" if arguments.launches else "blocks of 40 steps"
    what = f"{arguments.model}, {arguments.strategy}, batch {arguments.batch_size} per rank"
    print(f"{what}, alternating {way}; torchscale ÷ bare loop")
    for world_size in arguments.ranks:
        ranks = f"{world_size} rank{'s' * (world_size > 1)}"
        if arguments.launches:
            ratios = _launch_pairs(arguments, world_size)
            print(f"  {ranks}: {describe(ratios)}, {len(ratios)} pairs", flush=True)
        else:
            means, rejected = _blocks(arguments, world_size)
            words = f"{len(means)} processes of {arguments.pairs} pairs"
            print(
                f"  {ranks}: {describe(means)}, {words}; {rejected} pairs measured again",
                flush=True,
            )


def describe(ratios: Sequence[float]) -> str:
    """Geometric mean with its 95 % t-interval, and the spread (standard deviation) of a single
    ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, deviation = statistics.fmean(logs), statistics.stdev(logs)
    half = student_t_quantile(0.975, len(logs) - 1) * deviation / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half)
    verdict = "contains 1" if low <= 1 <= high else "EXCLUDES 1"
    return (
        f"ratio {math.exp(mean):.4f}, 95 % interval {low:.4f} to {high:.4f} ({verdict}), spread "
        f"{deviation * 100:.1f} %"
    )


def _blocks(arguments: argparse.Namespace, world_size: int) -> tuple[list[float], int]:
    """Mean ratio of each process, and how many pairs were measured again."""
    means, rejected = [], 0
    for _ in range(arguments.processes):
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "ratios.json"
            script = [
                str(HERE / "fidelity_blocks.py"),
                str(out),
                "--model",
                arguments.model,
                *_image_size(arguments),
            ]
            script += ["--batch-size", str(arguments.batch_size), "--pairs", str(arguments.pairs)]
            script += [
                "--max-foreign",
                str(arguments.max_foreign),
                "--strategy",
                arguments.strategy,
            ]
            subprocess.run([*_torchrun(world_size), *script], check=True, env=_environment())
            content = json.loads(out.read_text())
        means.append(statistics.geometric_mean(content["ratios"]))
        rejected += content["rejected"]
    return means, rejected


def _launch_pairs(arguments: argparse.Namespace, world_size: int) -> list[float]:
    """Alternate complete launches: ``torchscale benchmark`` on a cell, and a torchrun of the bare
    script."""
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        for pair in range(arguments.pairs):
            order = (_reported, _bare_rate) if pair % 2 else (_bare_rate, _reported)
            rates = {
                way: way(arguments, world_size, Path(directory) / f"{pair}-{way.__name__}")
                for way in order
            }
            ratios.append(rates[_reported] / rates[_bare_rate])
    return ratios


def _reported(arguments: argparse.Namespace, world_size: int, path: Path) -> float:
    """Throughput that ``torchscale benchmark`` reports for the cell."""
    options = {
        "name": arguments.model,
        **({"image_size": arguments.image_size} if arguments.image_size else {}),
    }
    config = path.with_suffix(".json")
    config.write_text(
        json.dumps(
            {
                "models": [options],
                "batch_sizes": arguments.batch_size,
                "gpu_counts": world_size,
                "device": "cpu",
                "benchmark": {
                    "measure_steps": arguments.steps,
                    "warmup_steps": 20,
                    "warmup_seconds": 0.0,
                },
                "launch": {"threads_per_rank": 1},
            }
        )
    )
    command = [
        sys.executable,
        "-m",
        "torchscale",
        "--quiet",
        "benchmark",
        str(config),
        "-o",
        str(path),
        "--json",
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=_environment())
    return float(json.loads(done.stdout)["cells"][0]["figures"]["samples_per_second"])


def _bare_rate(arguments: argparse.Namespace, world_size: int, path: Path) -> float:
    """Throughput that the bare script measures."""
    script = [
        str(HERE / "bare_loop.py"),
        str(path),
        "--model",
        arguments.model,
        *_image_size(arguments),
    ]
    script += ["--batch-size", str(arguments.batch_size), "--steps", str(arguments.steps)]
    subprocess.run(
        [*_torchrun(world_size), *script], check=True, env=_environment(), stderr=subprocess.DEVNULL
    )
    return float(json.loads(path.read_text())["samples_per_second"])


def _image_size(arguments: argparse.Namespace) -> list[str]:
    return ["--image-size", str(arguments.image_size)] if arguments.image_size else []


def _torchrun(world_size: int) -> list[str]:
    local = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={world_size}"]
    return [sys.executable, "-m", "torch.distributed.run", *local]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="tiny-resnet", choices=("tiny-resnet", "resnet18", "tiny-decoder")
    )
    parser.add_argument(
        "--strategy", default="ddp", choices=("ddp", "fsdp", "tensor", "sequence", "pipeline")
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument(
        "--pairs", type=int, default=20, help="per process; with --launches, in total"
    )
    parser.add_argument("--steps", type=int, default=200, help="measured steps of a launch")
    parser.add_argument(
        "--launches", action="store_true", help="compare complete launches instead of blocks"
    )
    parser.add_argument("--max-foreign", type=float, default=0.2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
