"""Rates of checkpoints against ``dd`` (and ``fio``, where it is installed) on the same disk.

::

    PYTHONPATH=benchmarks python benchmarks/checkpoint_disk.py --path /tmp --rounds 3
    PYTHONPATH=benchmarks python benchmarks/checkpoint_disk.py --limit 40 --rounds 3  # root

Each round measures a checkpoint by the command (``measure: [checkpoint]``, FSDP on two ranks), and
then has as many ``dd`` as ranks write files of the same size at the same time (``conv=fsync``), and
read them past the page cache (``iflag=direct``). Printed: the rates of each round and the median of
their ratios. ``--limit`` makes the disk: a file as a loop device whose rate the kernel's block
controller limits to so many MB/s, reads and writes each; the rates of ranks while they write and
read are then held against the limit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from limited_disk import limited_disk

_RANKS = 2
_MB = 1_000_000


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, default=Path("/tmp"))  # noqa: S108 - the disk to be judged
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=16, help="12.6 MB of state each")
    parser.add_argument("--limit", type=float, help="MB/s of a loop device")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.path) as directory:
        if arguments.limit is None:
            _compare(Path(directory), arguments.rounds, arguments.layers, None)
            return
        rate = arguments.limit * _MB
        image, mount = Path(directory) / "image", Path(directory) / "mount"
        mount.mkdir()
        with limited_disk(image, mount, rate, journal=True):
            _compare(mount, arguments.rounds, arguments.layers, rate)


def _compare(disk: Path, rounds: int, layers: int, limit: float | None) -> None:
    ratios: dict[str, list[float]] = {}
    for number in range(rounds):
        figures = _checkpoint(disk, layers)
        size = figures["payload_bytes"]
        wrote = [size / _slowest_write(figures, number) for number in range(len(figures["saves"]))]
        save, load = figures["save_bytes_per_second"], figures["load_bytes_per_second"]
        written, read = _dd(disk, size // _RANKS)
        print(
            f"round {number}: {size / _MB:.0f} MB, saved {save / _MB:.1f} MB/s "
            f"(while writing {statistics.median(wrote) / _MB:.1f}), loaded {load / _MB:.1f} "
            f"({figures['cold']}); dd wrote {written / _MB:.1f}, read {read / _MB:.1f}",
            flush=True,
        )
        found = {"save ÷ dd": save / written, "load ÷ dd": load / read}
        found["writing alone ÷ dd"] = statistics.median(wrote) / written
        if limit is not None:
            found |= {"save ÷ limit": save / limit, "load ÷ limit": load / limit}
            found |= {"dd write ÷ limit": written / limit, "dd read ÷ limit": read / limit}
        for name, ratio in found.items():
            ratios.setdefault(name, []).append(ratio)
    for name, values in ratios.items():
        each = ", ".join(f"{value:.3f}" for value in values)
        print(f"{name}: median {statistics.median(values):.3f} ({each})")
    print("fio:", "not compared" if shutil.which("fio") else "not installed")


def _slowest_write(figures: dict[str, Any], number: int) -> float:
    return max(float(seconds[number]) for seconds in figures["write_seconds"])


def _checkpoint(disk: Path, layers: int) -> dict[str, Any]:
    """Figures of the command's JSON, with each rank's seconds of writing."""
    with tempfile.TemporaryDirectory() as results:
        config = {
            "experiment_name": "disk",
            "measure": ["checkpoint"],
            "models": [{"name": "wide_model:build", "layers": layers}],
            "batch_sizes": [1],
            "gpu_counts": [_RANKS],
            "device": "cpu",
            "training": {"optimizer": "adamw"},
            "parallel": {"strategy": "fsdp"},
            "checkpoint": {"path": str(disk), "asynchronous": False},
        }
        path = Path(results) / "config.json"
        path.write_text(json.dumps(config))
        run = Path(results) / "run"
        command = [sys.executable, "-m", "torchscale", "benchmark", str(path), "--json"]
        done = subprocess.run(
            [*command, "-o", str(run)], check=True, stdout=subprocess.PIPE, text=True
        )
        (cell,) = json.loads(done.stdout)["machine"]
        (record,) = run.glob("cells/*/launch-0/record.json")
        ranks = json.loads(record.read_text())["payload"]["ranks"]
        figures: dict[str, Any] = cell["figures"]
        cold = {load["cold"] for load in figures["loads"]}
        seconds = [[save["write_seconds"] for save in rank["saves"]] for rank in ranks]
        return {**figures, "cold": "/".join(sorted(cold)), "write_seconds": seconds}


def _dd(disk: Path, size: int) -> tuple[float, float]:
    """Bytes per second that as many ``dd`` as ranks write and read together."""
    size -= size % (1 << 20)
    files = [disk / f"dd-{number}" for number in range(_RANKS)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        source = Path(memory) / "numbers"
        source.write_bytes(np.random.default_rng(0).bytes(size))
        write = [[f"if={source}", f"of={file}", "bs=1M", "conv=fsync"] for file in files]
        written = _together(write)
    read = [[f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct"] for file in files]
    seconds = _together(read)
    for file in files:
        file.unlink()
    return _RANKS * size / written, _RANKS * size / seconds


def _together(commands: list[list[str]]) -> float:
    began = time.perf_counter()
    program = shutil.which("dd") or "dd"
    running = [subprocess.Popen([program, *command, "status=none"]) for command in commands]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError("dd failed")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
