"""What ``torchscale watch`` sees of the frameworks that are installed: a table.

::

    python benchmarks/frameworks.py --python ~/frameworks/bin/python

Each framework trains a tiny network (``framework_program.py``) on two gloo ranks, watched. Compared
are its steps, its checkpoints, and the time of a step as it says itself and as ``watch`` does: from
the first step's end on, with checkpoints and evaluations. Frameworks that ``--python`` cannot
import are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from framework_program import PACKAGES

HERE = Path(__file__).resolve().parent
_SECONDS = 300
_VERSION = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__version__)"


@dataclass(frozen=True)
class Seen:
    """What was seen of one job.

    Attributes:
        steps, own_steps: As ``watch`` and as the framework counts them.
        seconds, own_seconds: Of a step.
        saves: Steps at which rank 0 saved.
        evaluating: Seconds in evaluations.
    """

    steps: int
    own_steps: int
    seconds: float
    own_seconds: float
    saves: tuple[int, ...]
    evaluating: float


def version(python: str, package: str) -> str | None:
    """Of a package; ``None`` where it cannot be imported."""
    done = subprocess.run(
        [python, "-c", _VERSION, package],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    return done.stdout.split()[-1] if done.returncode == 0 else None


def watched(python: str, framework: str, folder: Path, steps: int) -> Seen:
    """Train under ``watch``.

    Raises:
        RuntimeError: the program failed.
    """
    launcher = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [str(HERE / "framework_program.py"), framework, str(folder / "saved")]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", str(folder / "job")),
            *("--", *launcher, *program, "--steps", str(steps)),
        ],
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("OWN ")]
    if done.returncode or not said:
        raise RuntimeError(f"{framework} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    own = json.loads(said[0].removeprefix("OWN "))
    report = json.loads((folder / "job" / "watch.json").read_text())
    attempt = json.loads(next((folder / "job" / "attempts").glob("*.json")).read_text())
    time = report["time"]
    spent = time["steps"] + time["saving"] + time["evaluating"] + time["stalls"]
    return Seen(
        steps=report["steps"],
        own_steps=own["steps"],
        seconds=spent / max(1, report["steps"] - 1),
        own_seconds=own["seconds"],
        saves=tuple(sorted({save["steps"] for save in attempt["saves"]})),
        evaluating=time["evaluating"],
    )


def main() -> None:
    """Try all, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="that has the frameworks")
    parser.add_argument("--only", nargs="+", choices=tuple(PACKAGES), default=tuple(PACKAGES))
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    print("framework      version   steps (own)  checkpoints at  evaluating  ms a step (own)")
    for framework in options.only:
        versions = [version(options.python, package) for package in PACKAGES[framework]]
        if None in versions:
            print(f"{framework:14} not installed")
            continue
        with tempfile.TemporaryDirectory() as name:
            seen = watched(options.python, framework, Path(name), options.steps)
        print(
            f"{framework:14} {versions[0]:9} {seen.steps:5} ({seen.own_steps:3})  "
            f"{','.join(map(str, seen.saves)):>14}  {seen.evaluating * 1e3:7.1f} ms  "
            f"{seen.seconds * 1e3:9.2f} ({seen.own_seconds * 1e3:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
