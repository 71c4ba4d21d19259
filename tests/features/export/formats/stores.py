"""Runs for stores: a folder as a sweep leaves it, and what is given to a store of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests import factories
from torchscale.features.export.formats.store import RunToStore
from torchscale.report.figures.run import exported_run
from torchscale.results.reader import read_summary
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

PAGE = b"<!doctype html><title>report</title>"


def run_folder(
    path: Path, *, only: int | None = None, states: Mapping[int, State] | None = None
) -> Path:
    """Two training cells in ``path``; ``only`` finishes one of them, ``states`` makes some fail."""
    content = factories.run()
    folder = RunFolder.create(path, content.experiment)
    for place in range(len(content.experiment.plan)):
        if only is None or place == only:
            finish(folder, place, (states or {}).get(place, State.OK))
    return folder.path


def finish(folder: RunFolder, place: int, state: State = State.OK) -> None:
    """A launch of the cell at ``place`` ends."""
    cell = factories.trained(folder.experiment.plan[place])
    folder.begin_launch(cell, 0)
    ok = state is State.OK
    folder.finish_launch(
        cell, factories.launch_record(cell) if ok else factories.failed_record(cell, state, "why")
    )


def run_to_store(path: Path, *, report: bool = True) -> RunToStore:
    """What ``torchscale export`` gives a store."""
    summary = read_summary(path)
    return RunToStore(
        path, summary, exported_run(summary, parameters=True), (lambda: PAGE) if report else None
    )
