"""Which causes does another always-on tool, TraceML, name in the same programs as ``watch``?

::

    python -m venv peer && peer/bin/pip install traceml-ai   # beside the torch that is tested with
    python benchmarks/watch_peer.py --python peer/bin/python

Each run is ``traceml run`` of ``watched_program.py`` on two ranks, with the two lines that TraceML
asks for: ``init`` and ``trace_step`` around each step. What it says is printed as it says it; a run
is right if its straggler verdict names the rank, or no rank where none is slow.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from watch import END_SECONDS, PROGRAM, SCENARIOS, STRATEGIES, Scenario

_LINES = """
import sys

sys.path.insert(0, {folder!r})
import traceml_ai
import watched_program

traceml_ai.init(mode="auto")
watched_program.around_step = traceml_ai.trace_step
watched_program.main()
"""
_RANK = re.compile(r"\br(\d+)\b", re.IGNORECASE)
_SCENARIOS = ("none", "forward", "backward", "host", "loader", "middle")
RANKS = 2


def peer_verdict(python: Path, strategy: str, scenario: Scenario) -> dict[str, Any]:
    """The primary diagnosis of one run.

    Raises:
        RuntimeError: the run failed, or left no summary.
    """
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "program.py"
        script.write_text(_LINES.format(folder=str(PROGRAM.parent)))
        command = [str(python), "-m", "traceml_ai.launcher.cli", "run", str(script)]
        command += ["--nproc-per-node", str(RANKS), "--logs-dir", name, "--run-name", "run"]
        arguments = ["--strategy", strategy, "--steps", str(scenario.steps), *scenario.arguments]
        done = subprocess.run(
            [*command, "--args", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
            timeout=END_SECONDS,
        )
        summary = next(Path(name).rglob("final_summary.json"), None)
        if summary is None:
            raise RuntimeError(f"no summary: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        content: dict[str, Any] = json.loads(summary.read_text())
        diagnosis: dict[str, Any] = content["primary_diagnosis"]
        return diagnosis


def named_rank(diagnosis: dict[str, Any]) -> int | None:
    """The first rank that a straggler verdict names; ``None`` for other verdicts."""
    if "STRAGGLER" not in str(diagnosis.get("kind")):
        return None
    found = _RANK.search(str(diagnosis.get("summary") or diagnosis.get("reason") or ""))
    return int(found[1]) if found else None


def main() -> None:
    """Run all, and print each and the share that is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", type=Path, required=True, help="Python with traceml-ai and torch"
    )
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--only", nargs="+", default=list(_SCENARIOS))
    options = parser.parse_args()
    right = []
    for strategy in options.strategies:
        for scenario in SCENARIOS:
            if scenario.name not in options.only:
                continue
            diagnosis = peer_verdict(options.python.absolute(), strategy, scenario)
            right.append(named_rank(diagnosis) == scenario.rank)
            mark = "right" if right[-1] else "WRONG"
            print(f"{mark}  {strategy}, {scenario.name}: {json.dumps(diagnosis)[:300]}", flush=True)
    print(f"{sum(right)} of {len(right)} right")


if __name__ == "__main__":
    main()
