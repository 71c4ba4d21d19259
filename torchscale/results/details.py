"""Launches in full, for the few cells that a report draws over time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import LaunchDetail
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.store.run_folder import RunFolder
from torchscale.util.gc import gc_paused


@gc_paused()
def read_details(
    directory: Path, experiment: ExperimentFile, cells: Iterable[TrainingCell]
) -> dict[str, LaunchDetail]:
    """The first launch of each of ``cells``, by cell id; a cell without a launch that can be read
    is left out.

    Args:
        directory: A results directory.
        experiment: The run's ``experiment.json``.
        cells: Training cells of its plan.
    """
    folder = RunFolder(directory, experiment)
    details = {}
    for cell in cells:
        cell_run, _ = folder.load_cell(PlannedCell(cell=cell))
        if cell_run.launches:
            record = cell_run.launches[0]
            details[cell.id] = LaunchDetail(
                payload(record, TrainingResult),
                folder.readings(cell, record.launch),
            )
    return details
