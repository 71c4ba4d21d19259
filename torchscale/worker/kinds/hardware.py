"""A rank of a hardware cell."""

from __future__ import annotations

from torchscale.schema.cells.hardware import HardwareCell, HardwareRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.machine.hardware import measure_hardware
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started


def measure(
    task: LaunchTask, cell: HardwareCell, ranks: Ranks, files: RankFiles, started: Started
) -> HardwareRank:
    """:func:`~torchscale.worker.machine.hardware.measure_hardware`."""
    return measure_hardware(task, cell, ranks, files)
