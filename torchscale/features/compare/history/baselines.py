"""The reference of a comparison, taken from what was measured before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchscale.errors import UsageError
from torchscale.features.compare.analysis.change import MIN_LAUNCHES
from torchscale.features.compare.analysis.disturbances import flagged_conditions
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.history.file import HistoryFile, open_history
from torchscale.features.compare.history.read import add_folders, run_folders
from torchscale.features.compare.history.records import HistoryContent, HistoryOutcome, HistoryRun
from torchscale.features.compare.inputs import Side
from torchscale.features.compare.merged import merged_cell, merged_sessions
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State
from torchscale.util.units import parse_moment

_MAIN_BRANCHES = ("main", "master")
_LOOKED_AT = 50
"""Runs before the one that is judged, newest first: a run of two months ago is no `last` one of a
nightly job."""
_MAX_NAMED = 4
_MOST_RUNS = 200
"""Maximum number of runs of a median: each is read as a whole."""
_MEDIAN = re.compile(r"median-of-([0-9]{1,4})")


@dataclass(frozen=True)
class Against:
    """Which earlier runs are the reference; ``runs`` is how many a median is taken of."""

    which: Literal["last", "main", "median"]
    runs: int = 1

    @staticmethod
    def is_word(text: str) -> bool:
        """Whether :meth:`from_text` is to read it: a word, or what begins as one."""
        return text in ("last", "main") or text.startswith("median-of-")

    @classmethod
    def from_text(cls, text: str) -> Against:
        """``last``, ``main`` or ``median-of-10``.

        Raises:
            UsageError: anything else.
        """
        if text == "last":
            return cls("last")
        if text == "main":
            return cls("main")
        median = _MEDIAN.fullmatch(text)
        if median is None or not MIN_LAUNCHES <= int(median[1]) <= _MOST_RUNS:
            raise UsageError(
                f"--against {text}: expected last, main or median-of-N with N from {MIN_LAUNCHES} "
                f"to {_MOST_RUNS}, such as median-of-10; or a file or directory with results of "
                "other machines"
            )
        return cls("median", int(median[1]))


def earlier_side(new: Side, against: Against, source: Path) -> Side:
    """The side of a comparison that earlier runs are.

    Args:
        new: The run that is judged.
        against: Which runs to take.
        source: File of a history, or a directory with run folders.

    Raises:
        UsageError: there are no such runs.
        StoreError: the file is no history, or is damaged.
    """
    with _opened(source) as history:
        content = history.content()
        wanted = {
            workload_key(cell.cell) for cell in new.results.cells if cell.state is not State.SKIPPED
        }
        earlier = _earlier(content, new.results)
        if not earlier:
            raise UsageError(
                f"--against: no run in {source} was measured before {new.results.name}",
                hint="name another --history",
            )
        sound = _sound_cells(content, wanted)
        if against.which == "median":
            of_median = [run for run in earlier if sound.get(run.number)][: against.runs]
            runs = [history.results(run.number) for run in of_median]
            return Side(str(source), _median_side(runs, new.results, against.runs, source))
        if against.which == "main":
            earlier = _of_main(earlier, source)
        best = max(
            earlier[:_LOOKED_AT], key=lambda run: len(sound.get(run.number, ()))
        )  # the first, so the newest
        if not sound.get(best.number):
            raise UsageError(
                f"--against {against.which}: none of {len(earlier[:_LOOKED_AT])} earlier runs in "
                f"{source} measured a cell of {new.results.name} soundly"
            )
        return Side(f"{source}: {best.name}", history.results(best.number))


def named_side(name: str, source: Path) -> Side:
    """A run of a history as a side of a comparison.

    Args:
        name: Its name, or where several have it ``NAME@TIME`` with the beginning of the time at
            which its measurement began.
        source: File of a history, or a directory with run folders.

    Raises:
        UsageError: there is no such run, or several.
        StoreError: the file is no history, or is damaged.
    """
    with _opened(source) as history:
        runs = history.content().runs
        base, _, time = name.rpartition("@")
        found = [
            run
            for run in runs
            if run.name == name or (run.name == base and run.measured_at.startswith(time))
        ]
        if not found:
            raise UsageError(
                f"{name} is no run of {source}, and no run, file or baseline here",
                hint="a run by its name as `torchscale history` prints it",
            )
        if len(found) > 1:
            times = ", ".join(run.measured_at[:16] for run in found[:_MAX_NAMED])
            raise UsageError(
                f"{name}: {len(found)} runs of {source} have that name ({times})",
                hint=f"add the time: {found[-1].name}@{found[-1].measured_at[:16]}",
            )
        return Side(name, history.results(found[0].number))


@contextmanager
def _opened(source: Path) -> Iterator[HistoryFile]:
    """The file, or one in memory of the run folders in a directory; what cannot be read is left
    out."""
    if not source.is_dir():
        with open_history(source) as history:
            yield history
        return
    with open_history(None) as history:
        add_folders(history, run_folders(source))
        yield history


def _earlier(content: HistoryContent, new: ResultSet) -> list[HistoryRun]:
    """Runs that began before the new one, the newest first; those without a time are left out.

    Raises:
        UsageError: the new one has no time.
    """
    identity = history_entry(new).run.identity
    begun = parse_moment(new.created_at)
    if begun is None:
        raise UsageError(
            f"--against: created_at of {new.name} is {new.created_at[:40]!r}, so that no run is "
            "before it; expected a time such as 2026-01-02T03:04:05+00:00"
        )
    moments = [(parse_moment(run.measured_at), run) for run in content.runs]
    before = [
        (moment, run)
        for moment, run in moments
        if moment is not None and moment < begun and run.identity != identity
    ]
    before.sort(key=lambda pair: pair[0])
    return [run for _, run in reversed(before)]


def _of_main(runs: Sequence[HistoryRun], source: Path) -> list[HistoryRun]:
    of_main = [run for run in runs if run.git_branch in _MAIN_BRANCHES]
    if not of_main:
        branches = (
            ", ".join(sorted({run.git_branch for run in runs if run.git_branch})[:5])
            or "none is recorded"
        )
        raise UsageError(
            f"--against main: no earlier run in {source} is of the branch main or master; "
            f"branches there: {branches}",
            hint="start torchscale in the checkout of your code, so that its branch is recorded",
        )
    return of_main


def _sound_cells(content: HistoryContent, wanted: set[str]) -> dict[int, set[str]]:
    """Wanted workloads that each run measured without a condition that withholds a verdict, by
    number of the run."""
    keys = {number: workload_key(cell) for number, cell in content.cells.items()}
    measured = {(figure.run, figure.cell) for figure in content.figures}
    sound: dict[int, set[str]] = {}
    for outcome in content.outcomes:
        key = keys.get(outcome.cell, "")
        if key in wanted and (outcome.run, outcome.cell) in measured and _is_sound(outcome):
            sound.setdefault(outcome.run, set()).add(key)
    return sound


def _is_sound(outcome: HistoryOutcome) -> bool:
    return outcome.state is State.OK and not outcome.conditions


def _median_side(runs: Sequence[ResultSet], new: ResultSet, count: int, source: Path) -> ResultSet:
    """The launches of the last ``count`` runs (newest first) as one side, in the sessions of all of
    them."""
    cells = [cell for cell in new.cells if cell.state is not State.SKIPPED]
    merged = [(cell, _of_runs(cell, runs)) for cell in cells]
    enough = [(cell, parts) for cell, parts in merged if len(parts) >= MIN_LAUNCHES]
    if not enough:
        most = max((len(parts) for _, parts in merged), default=0)
        raise UsageError(
            f"--against median-of-{count}: {most} earlier run{'s' * (most != 1)} in {source} "
            f"measured a cell of {new.name} soundly on the same device and torch; expected "
            f"{MIN_LAUNCHES} or more",
            hint="--against last compares with one run",
        )
    newest, fewest = runs[0], min(len(parts) for _, parts in enough)
    most = max(len(parts) for _, parts in enough)
    return newest.model_copy(
        update={
            "name": f"median of {most if fewest == most else f'{fewest} to {most}'} runs",
            "cells": tuple(merged_cell(parts) for _, parts in enough),
            "problems": (),
            **merged_sessions(runs),
        }
    )


def _of_runs(cell: ResultCell, runs: Sequence[ResultSet]) -> list[ResultCell]:
    """Cells of the same workload in each run that measured it soundly on the same device and torch,
    the newest first. A cell that failed in the new run has neither."""
    key = workload_key(cell.cell)
    return [
        other
        for run in runs
        for other in run.cells
        if workload_key(other.cell) == key
        and other.state is State.OK
        and other.launches
        and not flagged_conditions(other)
        and (not cell.launches or (other.device, other.torch) == (cell.device, cell.torch))
    ]
