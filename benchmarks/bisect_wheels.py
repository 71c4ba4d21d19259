"""``torchscale bisect`` over twelve versions of a package that are built here, of which one adds
work: how often the right one is named on this machine, and in how many launches.

::

    python benchmarks/bisect_wheels.py --cost 0.3 --repeats 20
    python benchmarks/bisect_wheels.py --cost 0.1 --metric wall --directory /tmp/b

``--cost`` is a share of the work; of the command, which starts Python first, it is a little less.
Each repeat puts the step at another version, by the real command with wheels from a directory, and
environments in a cache of their own. What was done is continued. ``bisect_power.py --folder`` plays
with the noise of its launches.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from tests.bisect.wheels import write_versions  # noqa: E402 - of this checkout

VERSIONS = 12
LOOPS = 4_000_000
"""Some 0.2 s of adding numbers, about ten times the start of Python."""
COMMAND = ("python", "-c", "import demo; demo.work()")
TIMEOUT_SECONDS = 1800


def bisected(directory: Path, first_slow: int, cost: float, metric: str) -> dict[str, Any]:
    """The result of one bisection."""
    wheels = directory / "wheels"
    if not wheels.exists():
        write_versions(wheels, versions=VERSIONS, first_slow=first_slow, extra=cost, loops=LOOPS)
    done = subprocess.run(
        [
            sys.executable, "-m", "torchscale", "--quiet", "bisect", "demo==1.0",
            f"demo==1.{VERSIONS - 1}", f"--wheels={wheels}", f"--cache={directory / 'cache'}",
            f"--output-dir={directory / 'launches'}", f"--metric={metric}", "--json", "--", *COMMAND,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )  # fmt: skip
    if not done.stdout:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Bisect as often as asked, and print a line each and a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cost", type=float, default=0.3)
    parser.add_argument("--metric", default="cpu")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, default=Path("results/bisect-wheels"))
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    right, launches, noises = 0, [], []
    for repeat in range(options.repeats):
        first_slow = chosen.randrange(1, VERSIONS)
        name = f"{options.metric}-{options.cost:g}-{repeat}-{first_slow}"
        result = bisected(options.directory / name, first_slow, options.cost, options.metric)
        is_right = result["answers"] == [[f"demo 1.{first_slow}"]]
        right += is_right
        launches.append(result["launches"])
        noises.append(result["noise"])
        print(
            f"{repeat + 1}: step at 1.{first_slow}: {'right' if is_right else 'NOT RIGHT'}: "
            f"{result['verdict']} {result['launches']} launches, noise {result['noise']:.1%}",
            flush=True,
        )
    print(
        f"{right} of {options.repeats} right at {options.cost:.0%} ({options.metric}); launches: "
        f"median {statistics.median(launches)}, {min(launches)} to {max(launches)}; noise "
        f"{min(noises):.1%} to {max(noises):.1%}"
    )


if __name__ == "__main__":
    main()
