"""Parallelism strategies, one file each; :func:`parallelize` applies the one of a cell.

Strategies that split models are imported only where a cell uses them: they take as long to import
as torch itself.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from torchscale.config.strategies.data_parallel import Ddp, Fsdp, Zero1
from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import Workload
from torchscale.worker.parallel import ddp
from torchscale.worker.parallel.blocks import checkpoint_blocks, compile_mode, repeated_blocks
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.process_group import Ranks


def parallelize(workload: Workload, cell: TrainingCell, ranks: Ranks) -> Parallel:
    """The workload's model on this rank's device, as the cell's strategy runs it.

    Raises:
        ValueError: the model cannot be split by the cell's strategy.
    """
    if cell.channels_last:
        workload.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if cell.compile:
        _keep_experts_eager(workload.module)
    degrees = cell.degrees
    is_split = degrees.model > 1 or degrees.shard > 1 or degrees.expert > 1
    if isinstance(cell.strategy, Fsdp) or is_split:
        from torchscale.worker.parallel.mesh import parallelize_on_mesh  # noqa: PLC0415 - see above

        return parallelize_on_mesh(workload, cell, ranks)
    return _replicate(workload.module, cell, ranks)


def _keep_experts_eager(module: nn.Module) -> None:
    """Leave expert layers out of what is compiled: how many tokens an expert gets is read on the
    host, and is another number in each step."""
    for layer in expert_layers(module):
        layer.forward = torch.compiler.disable(layer.forward)  # type: ignore[method-assign, no-untyped-call]


def _replicate(module: nn.Module, cell: TrainingCell, ranks: Ranks) -> Parallel:
    """Every rank holds the whole model; on one device that is the module itself."""
    checkpoint_blocks(repeated_blocks(module), cell.activation_checkpointing)
    module.to(ranks.device)
    if ranks.world_size == 1:
        return _compiled(Parallel(module, module), cell)
    if isinstance(cell.strategy, Zero1):
        from torchscale.worker.parallel import zero  # noqa: PLC0415 - see above

        return _compiled(zero.wrap(module, ranks), cell)
    options = cell.strategy if isinstance(cell.strategy, Ddp) else Ddp()
    return _compiled(ddp.wrap(module, options, ranks), cell)


def _compiled(parallel: Parallel, cell: TrainingCell) -> Parallel:
    """The whole model compiled, with what wraps it: torch's compiler cuts its graph where DDP's
    buckets end."""
    mode = compile_mode(cell)
    if mode is None:
        return parallel
    compiled = torch.compile(parallel.model, mode=mode)
    assert isinstance(compiled, nn.Module)  # noqa: S101 - what a module compiles to
    return replace(parallel, model=compiled)
