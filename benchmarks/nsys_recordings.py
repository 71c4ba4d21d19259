"""Does a recording by the real Nsight Systems name the rank that is late, and by how much the other
waits?

::

    python benchmarks/nsys_recordings.py            # three versions, five recordings of each cause: 18 minutes
    python benchmarks/nsys_recordings.py --versions 2023.4 --repeats 2 --kineto

Two gloo ranks train a small network; one of them is 3 ms late in every forward pass, or none. Each
recording is made by ``torchscale profile --tool nsys`` with the versions that
scripts/nsight-systems.sh fetches; ``--kineto`` records the same with torch.profiler beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NSIGHT = HERE.parent / "build" / "nsight-systems"
CAUSES = (0, 1, -1)
"""The late rank; -1 for none."""


@dataclass(frozen=True)
class Seen:
    """What a recording told.

    Attributes:
        wait_seconds: Of each rank, a step.
        named: Rank of the straggler; ``None`` for nobody.
        steps: In the window.
    """

    wait_seconds: tuple[float, ...]
    named: int | None
    steps: int


def record(recorder: str, late: int, seconds: float, strategy: str) -> Seen:
    """One recording by a version of nsys, or by ``kineto``.

    Raises:
        RuntimeError: it failed.
    """
    tool = "kineto" if recorder == "kineto" else "nsys"
    path = (
        os.environ["PATH"]
        if tool == "kineto"
        else f"{NSIGHT / recorder / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    )
    config = {
        "models": [{"name": "late_mlp:build", "rank": late, "seconds": seconds}],
        "batch_sizes": [64],
        "gpu_counts": [2],
        "device": "cpu",
        "parallel": {"strategy": [strategy]},
    }
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "config.json").write_text(json.dumps(config))
        command = [
            sys.executable,
            "-m",
            "torchscale",
            "-q",
            "profile",
            "-c",
            "config.json",
            "--tool",
            tool,
        ]
        done = subprocess.run(
            [*command, "-o", "out", "--json"],
            cwd=name,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(HERE)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{recorder}: {done.stderr.strip()[-500:]}")
    analysis = json.loads(done.stdout)
    steps = analysis["window"]["steps"]
    stragglers = [item["rank"] for item in analysis["findings"] if item["kind"] == "straggler"]
    waits = tuple((rank["sync_stall_seconds"] or 0.0) / steps for rank in analysis["per_rank"])
    return Seen(waits, stragglers[0] if stragglers else None, steps)


def row(recorder: str, late: int, seen: Sequence[Seen]) -> str:
    """A line of the table."""
    if late < 0:
        waits = [wait for one in seen for wait in one.wait_seconds]
        named = sum(one.named is not None for one in seen)
        verdict = f"{named} named"
    else:
        waits = [one.wait_seconds[1 - late] for one in seen]
        verdict = (
            f"{sum(one.named == late for one in seen)} right, "
            f"{sum(one.named == 1 - late for one in seen)} wrong"
        )
    spread = f"{min(waits) * 1e3:.2f} to {max(waits) * 1e3:.2f}"
    who = "nobody" if late < 0 else f"rank {late}"
    return (
        f"| {recorder} | {who} | {len(seen)} | {statistics.fmean(waits) * 1e3:.2f} ({spread}) | "
        f"{verdict} |"
    )


def main() -> None:
    """Record everything, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--versions", nargs="*", default=["2022.4", "2023.4", "2024.2"])
    parser.add_argument(
        "--repeats", type=int, default=5, help="recordings of each cause and recorder"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.003, help="that the late rank waits in each forward pass"
    )
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--kineto", action="store_true", help="record the same with torch.profiler")
    arguments = parser.parse_args()
    recorders = [*arguments.versions, *(["kineto"] if arguments.kineto else [])]
    seen: dict[tuple[str, int], list[Seen]] = {
        (name, late): [] for name in recorders for late in CAUSES
    }
    for number in range(arguments.repeats):
        for (name, late), found in seen.items():
            found.append(record(name, late, arguments.seconds, arguments.strategy))
            print(f"{number + 1}/{arguments.repeats} {name} {late}: {found[-1]}", file=sys.stderr)
    print(
        "| recorder | late | recordings | the other's wait, ms a step: mean (range) | straggler |"
    )
    print("|---|---|---|---|---|")
    for (name, late), found in seen.items():
        print(row(name, late, found))


if __name__ == "__main__":
    main()
