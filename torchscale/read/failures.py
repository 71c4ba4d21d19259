"""The launches of a run that failed."""

from __future__ import annotations

from pathlib import Path

from torchscale.analysis.summary.run import RunSummary
from torchscale.schema.launch.record import LaunchRecord
from torchscale.store.run_folder import RunFolder


def failed_launches(directory: Path, summary: RunSummary) -> tuple[LaunchRecord, ...]:
    """The first failed launch of each cell that failed, in plan order; records of other cells are
    not read.

    Raises:
        StoreError: the folder cannot be read.
    """
    failed = {cell.cell.id for cell in summary.everything if cell.state.has_failed}
    if not failed:
        return ()
    folder = RunFolder.open(directory)
    records = []
    for entry in folder.experiment.plan:
        if entry.cell.id in failed:
            launches = folder.load_cell(entry)[0].launches
            records += [record for record in launches if record.state.has_failed][:1]
    return tuple(records)
