"""A rank of a training cell."""

from __future__ import annotations

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.process_group import Ranks
from torchscale.worker.profile.recording import record
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started, train


def measure(
    task: LaunchTask, cell: TrainingCell, ranks: Ranks, files: RankFiles, started: Started
) -> RankRecord | None:
    """Train, or record a few steps with a profiler if the task asks for it."""
    if task.recording is not None:
        record(cell, task.recording, ranks, files)
        return None
    return train(task, cell, ranks, files, started)
