"""Reads a results directory of any size as a summary.

Cells are read and summarized one by one, and a record is let go as soon as its cell is summarized.
A large directory is shared among several processes: large by the ranks of its cells, since a record
grows with them.
"""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary, assemble, summarize_any
from torchscale.analysis.summary.running import SeparateCells
from torchscale.errors import StoreError
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.store.run_folder import RunFolder
from torchscale.util.gc import gc_paused
from torchscale.util.interpreter import module_command

_RANKS_PER_PROCESS = 2_000
"""Fewer ranks, over all cells, take less time to read than a process takes to start."""
_MAX_PROCESSES = 8
_HEAD_START = 7_200
"""Ranks, over all cells, that this process reads while the others start."""
_MOST_RANKS = 1024
"""Maximum number of ranks that a cell counts for: the file may claim any number, and a few cells
are not worth a process."""
_LIMIT_SECONDS = 600.0
_Part = tuple[dict[int, AnySummary], list[str]]
"""Summaries by their cell's place in the plan, and what could not be read."""


@gc_paused()
def read_summary(directory: Path) -> RunSummary:
    """Summarize everything in a results directory; damaged files are left out and named in
    ``problems``.

    Raises:
        StoreError: it is no results directory, or its ``experiment.json`` cannot be read.
    """
    folder = RunFolder.open(directory)
    cells = read_cells(folder)
    return assemble(folder.path.resolve().name, folder.experiment, cells.summaries, cells.problems)


@gc_paused()
def read_cells(folder: RunFolder) -> SeparateCells:
    """Summarize every cell of a results directory by itself; damaged files are left out and named
    in ``problems``.

    Raises:
        StoreError: a process that read a share of the cells failed.
    """
    experiment = folder.experiment
    machine_runs, problems = _read_machine_runs(folder)
    summaries = _summarize_machine(folder, machine_runs)
    head, beyond = _head_start(experiment)
    count = min(_MAX_PROCESSES, os.cpu_count() or 1, 1 + beyond // _RANKS_PER_PROCESS)
    with _helpers(folder.path, range(head + 1, head + count), count) as helpers:
        parts = [
            _read_training(folder, slice(head)),
            _read_training(folder, slice(head, None, count)),
        ]
        for start, process, output in helpers:
            plan, part = _result_of(process, output)
            # Another command may have added cells to the plan since: then places in it are no
            # longer the same.
            same = plan == _fingerprint(experiment)
            parts.append(part if same else _read_training(folder, slice(start, None, count)))
    for part_summaries, part_problems in parts:
        summaries |= part_summaries
        problems += part_problems
    in_plan_order = tuple(summaries[place] for place in range(len(experiment.plan)))
    return SeparateCells(in_plan_order, tuple(machine_runs.values()), tuple(sorted(problems)))


def _read_machine_runs(folder: RunFolder) -> tuple[dict[int, CellRun], list[str]]:
    """Cells that measured the machine, by their place in the plan: few, and judged together."""
    runs: dict[int, CellRun] = {}
    problems = []
    for place, entry in enumerate(folder.experiment.plan):
        if as_kind(entry.cell, TrainingCell) is None:
            runs[place], cell_problems = folder.load_cell(entry)
            problems += cell_problems
    return runs, problems


def _summarize_machine(folder: RunFolder, runs: dict[int, CellRun]) -> dict[int, AnySummary]:
    run = Run(folder.path.name, folder.experiment, tuple(runs.values()))
    return {place: summarize_any(cell_run, None, run) for place, cell_run in runs.items()}


def _training_places(experiment: ExperimentFile) -> list[int]:
    return [
        place for place, entry in enumerate(experiment.plan) if as_kind(entry.cell, TrainingCell)
    ]


def _head_start(experiment: ExperimentFile) -> tuple[int, int]:
    """How many training cells this process reads while the others start, and the ranks of all
    further ones."""
    sizes = [
        min(_MOST_RANKS, experiment.plan[place].cell.world_size)
        for place in _training_places(experiment)
    ]
    until = [ranks for ranks in itertools.accumulate(sizes) if ranks <= _HEAD_START]
    return len(until), sum(sizes) - (until[-1] if until else 0)


def _fingerprint(experiment: ExperimentFile) -> tuple[str, int]:
    """Differs for plans that hold other cells, or as many in another order."""
    return experiment.plan_hash, len(experiment.plan)


def _read_training(folder: RunFolder, share: slice) -> _Part:
    """This share of the training cells."""
    repeats = folder.experiment.config.benchmark.repeats
    summaries: dict[int, AnySummary] = {}
    problems = []
    for place in _training_places(folder.experiment)[share]:
        cell_run, cell_problems = folder.load_cell(folder.experiment.plan[place])
        summaries[place] = summarize_any(cell_run, repeats)
        problems += cell_problems
    return summaries, problems


_SINGLE_THREADED = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
"""Only small series are worked on, and idle threads of the library spin for a while."""
_Helper = tuple[int, "subprocess.Popen[bytes]", IO[bytes]]
"""Which training cell it starts at, the process, what it writes."""


@contextmanager
def _helpers(directory: Path, starts: Sequence[int], step: int) -> Iterator[Sequence[_Helper]]:
    """A process for every ``step``-th training cell from each of ``starts``; none is left
    running."""
    started: list[_Helper] = []
    try:
        for start in starts:
            output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, with its process ended
            command = module_command(
                "torchscale.results.reader", str(directory), str(start), str(step)
            )
            try:
                process = subprocess.Popen(
                    command, stdout=output, stdin=subprocess.DEVNULL, env=_SINGLE_THREADED
                )
            except BaseException:
                output.close()
                raise
            started.append((start, process, output))
        yield started
    finally:
        for _, process, output in started:
            if process.poll() is None:
                process.kill()
                process.wait()
            output.close()


def _result_of(
    process: subprocess.Popen[bytes], output: IO[bytes]
) -> tuple[tuple[str, int], _Part]:
    """The fingerprint of the plan that a helper read, and its share of the cells."""
    try:
        code = process.wait(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"reading the results took over {_LIMIT_SECONDS:g} s") from error
    if code != 0:
        raise StoreError(f"a process that read a share of the results ended with {code}")
    output.seek(0)
    result: tuple[tuple[str, int], _Part] = pickle.load(output)  # noqa: S301 - of our own process, a moment ago
    return result


def _main(directory: str, start: str, step: str) -> None:
    with gc_paused():
        folder = RunFolder.open(Path(directory))
        part = _read_training(folder, slice(int(start), None, int(step)))
        pickle.dump(
            (_fingerprint(folder.experiment), part),
            sys.stdout.buffer,
            protocol=pickle.HIGHEST_PROTOCOL,
        )
        sys.stdout.buffer.flush()
        os._exit(
            0
        )  # freeing thousands of summaries one by one takes as long as reading hundreds of cells


if __name__ == "__main__":
    _main(*sys.argv[1:])
