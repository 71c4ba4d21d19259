"""Does the diagnosis tell a hot expert from a slow rank? Real gloo ranks whose experts are spread
over them; what is injected is one expert with four times its share of the tokens, one rank that is
6 ms slow, both on the same or on different ranks, or nothing.

::

    python benchmarks/experts.py                # 40 runs with a cause and 20 without, some minutes
    python benchmarks/experts.py --repeats 2    # 8 and 4 runs

Compute is a timed operator (``scenario_experts.py``), because ranks that share cores would slow each
other. A run is right if exactly the injected causes are named, each with its rank: uneven experts
on the rank of the hot expert, a straggler on the slow rank. Other findings (exposed communication)
are what gloo over the loopback is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
SLOW_SECONDS, SKEW = 0.006, 4.0
STEPS = 100
NAMING = ("straggler", "intermittent_straggler", "uneven_experts", "load_imbalance")
"""Findings that say that a rank is late, or that ranks are."""


@dataclass(frozen=True)
class Scenario:
    """What is injected.

    Attributes:
        name: For output.
        options: Of the model.
        expected: Kind and rank of each finding.
    """

    name: str
    options: dict[str, float]
    expected: frozenset[tuple[str, int | None]]


def _slow(rank: int) -> dict[str, float]:
    return {"rank": rank, "extra": SLOW_SECONDS}


_HOT = ("uneven_experts", 0)
SCENARIOS = (
    Scenario("nothing", {}, frozenset()),
    Scenario("hot expert", {"skew": SKEW}, frozenset({_HOT})),
    Scenario("slow rank 1", _slow(1), frozenset({("straggler", 1)})),
    Scenario("both, two ranks", {"skew": SKEW, **_slow(1)}, frozenset({_HOT, ("straggler", 1)})),
    Scenario("both, rank 0", {"skew": SKEW, **_slow(0)}, frozenset({_HOT, ("straggler", 0)})),
)


def measure(repeats: int, ranks: int) -> list[tuple[Scenario, frozenset[tuple[str, int | None]]]]:
    """What was found in each run, twice as many of them with nothing injected."""
    runs = [
        (scenario, number)
        for scenario in SCENARIOS
        for number in range(repeats * (1 if scenario.expected else 2))
    ]
    # Options that change nothing tell the runs of a scenario apart.
    models = [
        {"name": "scenario_experts:build", "seconds": 0.01 + number * 1e-6, **scenario.options}
        for scenario, number in runs
    ]
    config = {
        "models": models,
        "batch_sizes": [4],
        "gpu_counts": [ranks],
        "benchmark": {
            "preset": "quick",
            "warmup_steps": 5,
            "warmup_seconds": 0.1,
            "warmup_max_seconds": 1.0,
            "measure_steps": STEPS,
        },
        "launch": {"oversubscribe": True},
        "parallel": {"strategy": "ep"},
        "profiling": {"enabled": False},
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        done = subprocess.run(
            [sys.executable, "-m", "torchscale", "benchmark", str(path), "--json"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    cells: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    by_options = {json.dumps(cell["cell"]["model_options"], sort_keys=True): cell for cell in cells}
    results = []
    for (scenario, _), model in zip(runs, models, strict=True):
        options = {key: value for key, value in model.items() if key != "name"}
        cell = by_options[json.dumps(options, sort_keys=True)]
        findings = (cell["diagnosis"] or {"findings": []})["findings"]
        named = {(one["kind"], one["rank"]) for one in findings if one["kind"] in NAMING}
        results.append((scenario, frozenset(named)))
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each scenario: how often it was right, and what was named else."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=10, help="runs of each scenario")
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args(arguments)
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for scenario, named in measure(given.repeats, given.ranks):
        total[scenario.name] += 1
        right[scenario.name] += named == scenario.expected
        if named != scenario.expected:
            found = ", ".join(f"{kind} (rank {rank})" for kind, rank in sorted(named, key=str))
            wrong.append(f"{scenario.name}: named {found or 'nobody'}")
    for scenario in SCENARIOS:
        print(f"{scenario.name:<16} {right[scenario.name]:>3} of {total[scenario.name]}")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
