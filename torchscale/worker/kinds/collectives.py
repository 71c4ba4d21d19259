"""A rank of a collectives cell."""

from __future__ import annotations

from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.machine.collectives import measure_collectives
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started


def measure(
    task: LaunchTask, cell: CollectivesCell, ranks: Ranks, files: RankFiles, started: Started
) -> CollectivesRank:
    """:func:`~torchscale.worker.machine.collectives.measure_collectives`."""
    return measure_collectives(task, cell, ranks, files)
