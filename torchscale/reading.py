"""A results directory as a summary, whatever its size: cells are read and summarised one by one, and on a large one
several processes share them. A record is let go as soon as its cell is summarised."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torchscale.analysis.results import AnySummary, RunSummary, assemble, summarize_any
from torchscale.errors import StoreError
from torchscale.garbage import no_collections
from torchscale.schema.cell import Cell
from torchscale.schema.run import CellRun, Run
from torchscale.store import RunFolder

_CELLS_WORTH_A_PROCESS = 250
_MAX_PROCESSES = 8
_HEAD_START = 500
"""Cells that are read while a helper starts."""
_LIMIT_SECONDS = 600.0
_Part = tuple[dict[int, AnySummary], list[str]]
"""Summaries by their cell's place in the plan, and what could not be read."""


@no_collections()
def read_summary(directory: Path) -> RunSummary:
    """Everything in a results directory, damaged files left out and named in ``problems``.

    Raises:
        StoreError: it is no results directory, or its ``experiment.json`` cannot be read.
    """
    folder = RunFolder.open(directory)
    beyond = max(0, len(_trained(folder)) - _HEAD_START)
    count = min(_MAX_PROCESSES, os.cpu_count() or 1, 1 + beyond // _CELLS_WORTH_A_PROCESS)
    found, problems = _read_machine(folder)
    with _helpers(directory, count) as helpers:
        parts = [_read_share(folder, 0, count), *(_result_of(helper, output) for helper, output in helpers)]
    for summaries, told in parts:
        found |= summaries
        problems += told
    experiment = folder.experiment
    everything = [found[place] for place in range(len(experiment.plan))]
    return assemble(folder.path.resolve().name, experiment, everything, sorted(problems))


def _read_machine(folder: RunFolder) -> _Part:
    """Cells that measured the machine: few, and judged beside each other."""
    runs: dict[int, CellRun] = {}
    problems = []
    for place, entry in enumerate(folder.experiment.plan):
        if not isinstance(entry.cell, Cell):
            runs[place], told = folder.load_cell(entry)
            problems += told
    known = Run(folder.path.name, folder.experiment, tuple(runs.values()))
    return {place: summarize_any(run, None, known) for place, run in runs.items()}, problems


def _trained(folder: RunFolder) -> list[int]:
    return [place for place, entry in enumerate(folder.experiment.plan) if isinstance(entry.cell, Cell)]


def _read_share(folder: RunFolder, share: int, of: int) -> _Part:
    """Every ``of``-th training cell from the ``share``-th on; the first share is larger by a head start."""
    repeats = folder.experiment.config.benchmark.repeats
    found: dict[int, AnySummary] = {}
    problems = []
    trained = _trained(folder)
    for place in [*(trained[:_HEAD_START] if share == 0 else ()), *trained[_HEAD_START:][share::of]]:
        run, told = folder.load_cell(folder.experiment.plan[place])
        found[place] = summarize_any(run, repeats)
        problems += told
    return found, problems


_ONE_THREAD = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
"""Small series alone are worked on, and idle threads of the library spin for a while."""
_Helper = tuple["subprocess.Popen[bytes]", IO[bytes]]


@contextmanager
def _helpers(directory: Path, count: int) -> Iterator[Sequence[_Helper]]:
    """Processes for all shares but the first; none is left behind."""
    started: list[_Helper] = []
    try:
        for share in range(1, count):
            output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, with its process ended
            command = [sys.executable, "-m", "torchscale.reading", str(directory), str(share), str(count)]
            process = subprocess.Popen(command, stdout=output, stdin=subprocess.DEVNULL, env=_ONE_THREAD)
            started.append((process, output))
        yield started
    finally:
        for process, output in started:
            if process.poll() is None:
                process.kill()
                process.wait()
            output.close()


def _result_of(process: subprocess.Popen[bytes], output: IO[bytes]) -> _Part:
    try:
        code = process.wait(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"reading the results took over {_LIMIT_SECONDS:g} s") from error
    if code != 0:
        raise StoreError(f"a process that read a share of the results ended with {code}")
    output.seek(0)
    part: _Part = pickle.load(output)  # noqa: S301 - written by a process of our own a moment ago
    return part


def _main(directory: str, share: str, of: str) -> None:
    with no_collections():
        part = _read_share(RunFolder.open(Path(directory)), int(share), int(of))
        pickle.dump(part, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    _main(*sys.argv[1:])
