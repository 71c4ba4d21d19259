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
from torchscale.schema.experiment import ExperimentFile
from torchscale.schema.run import CellRun, Run
from torchscale.store import RunFolder

_CELLS_WORTH_A_PROCESS = 250
_MAX_PROCESSES = 8
_HEAD_START = 900
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
    experiment = folder.experiment
    found, problems = _read_machine(folder)
    starts = range(_HEAD_START + 1, _HEAD_START + count)
    with _helpers(directory, starts, count) as helpers:
        parts = [_read_cells(folder, slice(_HEAD_START)), _read_cells(folder, slice(_HEAD_START, None, count))]
        for start, helper, output in helpers:
            plan, part = _result_of(helper, output)
            # A sweep may have joined the run since: then places are no longer the same.
            parts.append(part if plan == _fingerprint(experiment) else _read_cells(folder, slice(start, None, count)))
    for summaries, told in parts:
        found |= summaries
        problems += told
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


def _fingerprint(experiment: ExperimentFile) -> tuple[str, int]:
    """Differs for plans that hold other cells, or as many in another order."""
    return experiment.plan_hash, len(experiment.plan)


def _read_cells(folder: RunFolder, share: slice) -> _Part:
    """These of the training cells."""
    repeats = folder.experiment.config.benchmark.repeats
    found: dict[int, AnySummary] = {}
    problems = []
    for place in _trained(folder)[share]:
        run, told = folder.load_cell(folder.experiment.plan[place])
        found[place] = summarize_any(run, repeats)
        problems += told
    return found, problems


_ONE_THREAD = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
"""Small series alone are worked on, and idle threads of the library spin for a while."""
_Helper = tuple[int, "subprocess.Popen[bytes]", IO[bytes]]
"""Which training cell it starts at, the process, what it writes."""


@contextmanager
def _helpers(directory: Path, starts: Sequence[int], step: int) -> Iterator[Sequence[_Helper]]:
    """A process for every ``step``-th training cell from each of ``starts``; none is left behind."""
    started: list[_Helper] = []
    try:
        for start in starts:
            output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, with its process ended
            command = [sys.executable, "-m", "torchscale.reading", str(directory), str(start), str(step)]
            process = subprocess.Popen(command, stdout=output, stdin=subprocess.DEVNULL, env=_ONE_THREAD)
            started.append((start, process, output))
        yield started
    finally:
        for _, process, output in started:
            if process.poll() is None:
                process.kill()
                process.wait()
            output.close()


def _result_of(process: subprocess.Popen[bytes], output: IO[bytes]) -> tuple[tuple[str, int], _Part]:
    """The plan that it saw, and what it found."""
    try:
        code = process.wait(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"reading the results took over {_LIMIT_SECONDS:g} s") from error
    if code != 0:
        raise StoreError(f"a process that read a share of the results ended with {code}")
    output.seek(0)
    found: tuple[tuple[str, int], _Part] = pickle.load(output)  # noqa: S301 - of our own process, a moment ago
    return found


def _main(directory: str, start: str, step: str) -> None:
    with no_collections():
        folder = RunFolder.open(Path(directory))
        part = _read_cells(folder, slice(int(start), None, int(step)))
        pickle.dump((_fingerprint(folder.experiment), part), sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()
        os._exit(0)  # freeing thousands of summaries one by one takes as long as reading hundreds of cells


if __name__ == "__main__":
    _main(*sys.argv[1:])
