"""A rank of a checkpoint cell."""

from __future__ import annotations

from torchscale.schema.cells.checkpoint import CheckpointCell, CheckpointRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.checkpoint.measure import measure_checkpoint
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started


def measure(
    task: LaunchTask, cell: CheckpointCell, ranks: Ranks, files: RankFiles, started: Started
) -> CheckpointRank:
    """:func:`~torchscale.worker.checkpoint.measure.measure_checkpoint`."""
    return measure_checkpoint(task, cell, ranks, files)
