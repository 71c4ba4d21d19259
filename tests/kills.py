"""``python -m tests.kills --count 1000``: kill -9 of torchscale at random moments of a sweep over
every kind of cell, resumed each time. No complete launch may be lost, changed or measured again,
and no process may be left.

A sweep that ends by itself is checked whole and begun again in a new folder, so that kills strike
everywhere: in the start, in launches of every kind, between them, and in the last writes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.conftest import CATALOGUED, Program

ENDED_SECONDS = 20.0
SHORTEST_SECONDS, MOST_SECONDS = 0.1, 60.0
LONGER, SHORTER = 1.15, 0.9
NET = {"name": "faulty:build", "fault": "none"}
SWEEPS: dict[str, dict[str, Any]] = {
    "training": {"models": CATALOGUED, "batch_sizes": [4, 8], "gpu_counts": [2]},
    "every kind": {
        "models": NET,
        "batch_sizes": [4, 8],
        "gpu_counts": [1, 2],
        "measure": ["hardware", "collectives", "memory", "training"],
        "collectives": {
            "operations": ["all_reduce", "barrier"],
            "max_bytes": "4KiB",
            "iterations": 3,
        },
        "hardware": {"matmul_sizes": [64], "seconds": 0.02, "copy_bytes": "1MiB"},
        "telemetry": {"interval_seconds": 0.2},
    },
}


@dataclass
class Kills:
    """Kills of one sweep.

    Attributes:
        program: Where it runs.
        isolation: ``auto``, ``cell`` or ``group``.
        content: Of the config.
        longest_seconds: Of a session before it is killed. It grows while no launch gets done, as on
            a busy machine, so that kills do not stay in the same launch, and shrinks where launches
            get done or a sweep ends by itself.
        killed: How often torchscale was killed while it ran.
        ended: Sweeps that ended by themselves.
        phases: phase of the sweep → kills in it.
    """

    program: Program
    isolation: str
    content: dict[str, Any]
    longest_seconds: float = 12.0
    killed: int = 0
    ended: int = 0
    phases: dict[str, int] = field(default_factory=dict)
    _complete: dict[str, bytes] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """What was seen, in a line."""
        places = ", ".join(f"{count} {phase}" for phase, count in sorted(self.phases.items()))
        return (
            f"{self.killed} kills ({places}), {self.ended} sweeps ended, 0 records lost or changed, "
            "0 processes left"
        )

    def strike(self, chance: random.Random) -> None:
        """Start or resume the sweep, and kill it after a random time; a sweep that was over before
        is checked and removed.

        Raises:
            AssertionError: something was lost or left.
        """
        before, output, phase = len(self._complete), "", ""
        with self.program.start("benchmark", self._config()) as process:
            try:
                output, _ = process.communicate(
                    timeout=chance.uniform(SHORTEST_SECONDS, self.longest_seconds)
                )
            except subprocess.TimeoutExpired:
                phase = self._phase()
            finally:  # also where somebody ends these kills
                process.kill()
        self.check()
        if phase:
            self.killed += 1
            self.phases[phase] = self.phases.get(phase, 0) + 1
        else:
            assert process.returncode == 0, output
            self._check_whole()
        change = LONGER if phase and len(self._complete) == before else SHORTER
        self.longest_seconds = min(MOST_SECONDS, self.longest_seconds * change)

    def finish(self) -> None:
        """Resume the sweep to its end, and check it.

        Raises:
            AssertionError: something was lost, left or not measured.
        """
        done = self.program.run("benchmark", self._config())
        self.check()
        assert done.returncode == 0, done.stderr
        self._check_whole()

    def check(self) -> None:
        """No process is left, and every launch that was complete before is as it was.

        Raises:
            AssertionError: it is not so.
        """
        deadline = time.monotonic() + ENDED_SECONDS
        while self.program.leftovers() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.program.leftovers() == []
        records = self._records()
        for name, content in self._complete.items():
            assert name in records, f"{name} was lost"
            assert records[name] == content, f"{name} was changed"
        for content in records.values():
            json.loads(content)
        self._complete = records

    def _check_whole(self) -> None:
        folder = self.program.directory / "results/run"
        states = {name: json.loads(content)["state"] for name, content in self._records().items()}
        assert set(states.values()) == {"ok"}, states
        planned = [
            entry
            for entry in json.loads((folder / "experiment.json").read_bytes())["plan"]
            if entry["skip_reason"] is None
        ]
        assert len(states) == len(planned), (sorted(states), len(planned))
        for path in folder.rglob("*.json"):
            json.loads(path.read_bytes())
        assert not list((folder / "cells").rglob("*.tmp"))
        assert not (folder / ".group").exists()
        rows = (folder / "summary.csv").read_text().splitlines()
        assert len(rows) == 1 + len(planned)
        left = [
            path
            for path in self.program.directory.iterdir()
            if path.name not in ("config.json", "results")
        ]
        assert left == []
        shutil.rmtree(folder)
        self._complete = {}
        self.ended += 1

    def _config(self) -> str:
        return self.program.config(**self.content, launch={"isolation": self.isolation})

    def _records(self) -> dict[str, bytes]:
        """``<cell-id>/launch-K`` → its record."""
        paths = (self.program.directory / "results/run/cells").glob("*/launch-*/record.json")
        return {
            f"{path.parent.parent.name}/{path.parent.name}": path.read_bytes() for path in paths
        }

    def _phase(self) -> str:
        """Where the sweep is: in a launch of a kind, between two, or before the first."""
        folder = self.program.directory / "results/run"
        if not (folder / "experiment.json").exists():
            return "before the sweep"
        for path in (folder / "cells").glob("*/launch-*"):
            if not (path / "record.json").exists():
                return f"in {path.parent.name.partition('-')[0]} launches"
        return "between launches"


def main() -> int:
    """Run ``--count`` kills, and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="Kills, over all isolations.")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="End after so many, also with fewer kills.",
    )
    parser.add_argument("--seed", type=int, default=7, help="Of the moments.")
    parser.add_argument(
        "--stop-file", type=Path, help="Wait between two kills while this file exists."
    )
    options = parser.parse_args()
    began = time.monotonic()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="torchscale-kills-") as scratch:
        os.environ["TMPDIR"] = str(_directory(scratch, "tmp"))
        series = [
            Kills(
                Program(_directory(scratch, isolation), f"{isolation}-{os.getpid()}"),
                isolation,
                SWEEPS["every kind"],
            )
            for isolation in ("auto", "cell", "group")
        ]

        def killed() -> int:
            return sum(kills.killed for kills in series)

        while killed() < options.count and time.monotonic() - began < options.seconds:
            _wait_while(lambda: options.stop_file is not None and options.stop_file.exists())
            kills = series[killed() % len(series)]
            kills.strike(chance)
            if killed() % 20 == 0:
                _tell(f"{killed()} of {options.count}: {kills.isolation}: {kills.told}")
        for kills in series:
            kills.finish()
            _tell(f"{kills.isolation}: {kills.told}")
        left = sorted(path.name for path in Path(scratch, "tmp").iterdir())
        _tell(f"{len(left)} files in TMPDIR: {', '.join(left[:5])}")
    _tell(f"{killed()} kills in {time.monotonic() - began:.0f} s, seed {options.seed}")
    return 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _directory(parent: str, name: str) -> Path:
    directory = Path(parent) / name
    directory.mkdir()
    return directory


def _wait_while(condition: Callable[[], bool]) -> None:
    while condition():
        time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main())
