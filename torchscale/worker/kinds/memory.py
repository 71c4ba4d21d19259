"""A rank of a memory cell."""

from __future__ import annotations

from torchscale.schema.cells.memory import MemoryCell, MemoryRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.memory.model_memory import measure_memory
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started


def measure(
    task: LaunchTask, cell: MemoryCell, ranks: Ranks, files: RankFiles, started: Started
) -> MemoryRank:
    """:func:`~torchscale.worker.memory.model_memory.measure_memory`."""
    return measure_memory(task, cell, ranks, files)
