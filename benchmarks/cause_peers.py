"""What other tools say of the jobs with causes, as they say it.

TraceML gets the two lines that it asks for: ``init``, and ``trace_step`` around each step. Torch's
own analyzer of flight recorders gets, of jobs that fail, what each rank's recorder held last.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cause_judge import JOBS

from torchscale.util.processes.bounded import run_bounded

SECONDS = 240.0
"""In which a job under another tool has ended."""
_TRACED = """
import runpy, sys

sys.path.insert(0, {jobs!r})
import traceml_ai
import training

traceml_ai.init(mode="auto")
training.around_step = traceml_ai.trace_step
runpy.run_path({program!r}, run_name="__main__")
"""
_RECORDED = """
import os, pathlib, pickle, runpy, sys, threading, time

os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
sys.path.insert(0, {jobs!r})
import torch
import torch.distributed as dist


def keep():
    path = pathlib.Path({folder!r}) / f"rank_{{dist.get_rank()}}"
    content = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
    # gloo leaves its group without a name, with which the analyzer can do nothing.
    names = dict(entry["process_group"] for entry in content["entries"])
    if "" in content["pg_config"] and len(names) == 1:
        (name, described), = names.items()
        group = {{**content["pg_config"].pop(""), "name": name, "desc": described}}
        content["pg_config"][name] = group
    unfinished = path.parent.with_name(f"{{path.name}}.part")
    unfinished.write_bytes(pickle.dumps(content))
    unfinished.rename(path)


def keep_again():
    while True:
        time.sleep(0.02)
        if dist.is_initialized():
            keep()


threading.Thread(target=keep_again, daemon=True).start()
runpy.run_path({program!r}, run_name="__main__")
"""
_MOST = 4
"""Lines of the analyzer that are shown."""


def peer_says(python: Path, command: Sequence[str], folder: Path, fails: bool) -> list[str]:
    """What is said of a job.

    Args:
        python: With traceml-ai and torch.
        command: torchrun, its options, the program and its arguments.
        folder: Of the run.
        fails: Whether the job fails; of one that does torch's analyzer is asked too.
    """
    said = [f"TraceML: {_traceml_says(python.absolute(), command, folder)}"]
    if fails:
        said += [f"torchfrtrace: {text}" for text in _analyzer_says(command, folder)]
    return said


def _traceml_says(python: Path, command: Sequence[str], folder: Path) -> str:
    place = _program_place(command)
    script = folder / "traced.py"
    script.write_text(_TRACED.format(jobs=str(JOBS), program=command[place]))
    run = [str(python), "-m", "traceml_ai.launcher.cli", "run", str(script)]
    run += ["--nproc-per-node", command[place - 1], "--logs-dir", str(folder), "--run-name", "run"]
    done = run_bounded(
        [*run, "--args", *command[place + 1 :]],
        timeout_seconds=SECONDS,
        env=_environment(),
        cwd=folder,
    )
    summary = next(folder.rglob("final_summary.json"), None)
    if summary is None:
        return f"no summary: {' '.join((done.stdout + done.stderr).split())[-300:]}"
    diagnosis = json.loads(summary.read_text())["primary_diagnosis"]
    texts = (diagnosis.get(name) for name in ("kind", "summary", "reason"))
    return "; ".join(str(text) for text in texts if text)


def _analyzer_says(command: Sequence[str], folder: Path) -> list[str]:
    place = _program_place(command)
    dumps = folder / "dumps"
    dumps.mkdir()
    script = folder / "recorded.py"
    content = _RECORDED.format(jobs=str(JOBS), folder=str(dumps), program=command[place])
    script.write_text(content)
    job = [*command[:place], str(script), *command[place + 1 :]]
    run_bounded(job, timeout_seconds=SECONDS, env=_environment())
    analyzer = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    done = run_bounded(
        [*analyzer, str(dumps), "--prefix", "rank_", "--allow-incomplete-ranks"],
        timeout_seconds=SECONDS,
        env=_environment(),
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if _tells(line)]
    return lines[:_MOST] or [" ".join((done.stdout + done.stderr).split())[-300:] or "nothing"]


def _tells(line: str) -> bool:
    return bool(re.search(r"(?i)mismatch|missing|not all ranks|did not|culprit|error", line))


def _program_place(command: Sequence[str]) -> int:
    return next(place for place, text in enumerate(command) if text.startswith(str(JOBS)))


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
