"""One file per way of spreading a model over devices; :func:`parallelize` applies the cell's."""

from __future__ import annotations

from torch import nn

from torchscale.schema.cell import Cell
from torchscale.worker.parallel import ddp
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.ranks import Ranks


def parallelize(module: nn.Module, cell: Cell, ranks: Ranks) -> Parallel:
    """The module as the cell's strategy runs it; on one device that is the module itself."""
    if ranks.world_size == 1:
        return Parallel(module)
    if cell.strategy == "ddp":
        return ddp.wrap(module, ranks)
    raise ValueError(f"strategy {cell.strategy} does not run on {ranks.world_size} devices")
