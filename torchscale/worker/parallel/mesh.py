"""Strategies whose ranks hold parts of a model: pipeline, tensor, shard and replicate dimensions of
one device mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from torchscale.config.degrees import Degrees
from torchscale.config.strategies.data_parallel import Sharded
from torchscale.config.strategies.model_parallel import PipelineBase
from torchscale.config.strategy import is_sequence_parallel, sharding
from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import BatchOfTensors, Workload
from torchscale.worker.parallel import context, ddp, expert, fsdp, pipeline, tensor
from torchscale.worker.parallel.blocks import (
    checkpoint_blocks,
    compile_blocks,
    compile_mode,
    repeated_blocks,
)
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.precision import PrecisionPolicy
from torchscale.worker.process_group import Ranks

S = TypeVar("S")
Take = Callable[[BatchOfTensors], BatchOfTensors]

_DIMENSIONS = ("pipeline", "replicate", "shard", "tensor")
_CONTEXT_DIMENSIONS = ("outside", "context", "within")
_EXPERT_DIMENSIONS = ("pipeline", "replicate", "shard", "expert", "tensor")


def parallelize_on_mesh(workload: Workload, cell: TrainingCell, ranks: Ranks) -> Parallel:
    """This rank's part of the model. The order matters: sequences are split and stages cut first;
    matrices are split and experts spread before anything wraps them; recomputation and compilation
    go inside FSDP or DDP, which come last.

    Raises:
        ValueError: the model does not support the cell's strategy.
    """
    degrees, strategy = _degrees_of_parameters(cell), cell.strategy
    take = _split_sequences(workload, cell, ranks) if cell.degrees.context > 1 else None
    mesh = _mesh(degrees.beside_experts(sharded=_sharding(cell) is not None), ranks)
    expert_mesh = _expert_mesh(degrees, ranks)
    coordinate = degrees.coordinate(ranks.rank)
    if degrees.expert > 1 and not expert_layers(workload.module):
        raise ValueError("the model has no experts that can be spread over ranks")
    parts: dict[int, nn.Module] = {0: workload.module}
    stages = 1
    if degrees.pipeline > 1:
        assert isinstance(strategy, PipelineBase)  # noqa: S101 - no other has a pipeline degree
        stages = strategy.stages(degrees)
        how = _required(workload.pipeline, "cut into pipeline stages", cell)
        parts = pipeline.cut(
            workload.module,
            how,
            pipeline.stages_of(coordinate.pipeline, degrees.pipeline, stages),
            stages,
        )
    wrapped: dict[int, nn.Module] = {}
    for number, part in parts.items():
        if stages > 1:
            _autocast_within(part, cell, ranks)
        if degrees.tensor > 1:
            matrices = _required(workload.tensor, "split by tensor parallelism", cell)
            tensor.split(part, matrices, mesh["tensor"], sequence=is_sequence_parallel(strategy))
        _spread_experts(part, degrees, mesh if expert_mesh is None else expert_mesh)
        wrapped[number] = _shard_or_replicate(part, cell, mesh, expert_mesh, ranks)
    sharded = _sharding(cell)
    autocast = sharded is None or not fsdp.casts_parameters(
        sharded, cell.precision, workload.module
    )
    groups = _norm_groups(degrees, mesh)
    if degrees.pipeline == 1:
        model = wrapped[0]
        accumulating = None if sharded is None else lambda last: fsdp.set_last_pass(model, last)
        no_sync = model.no_sync if isinstance(model, nn.parallel.DistributedDataParallel) else None
        after_backward = None
        if expert_mesh is not None and sharded is None and degrees.replicate > 1:
            group = expert_mesh["replicate"].get_group()
            copies = expert.CopiedExperts(expert_layers(parts[0]), group)
            accumulating, after_backward = copies.set_last_pass, copies.finish
        return Parallel(
            parts[0],
            model,
            autocast=autocast,
            no_sync=no_sync,
            accumulating=accumulating,
            after_backward=after_backward,
            gradients_first=no_sync is not None,
            waits_in_python=True,
            syncs_within_groups=no_sync is not None and degrees.tensor > 1,
            take=take,
            norm_groups=groups,
        )
    assert isinstance(strategy, PipelineBase) and workload.pipeline is not None  # noqa: S101 - as above
    runner = pipeline.Stages(
        wrapped,
        workload.pipeline,
        stages=stages,
        group=mesh["pipeline"].get_group(),
        device=ranks.device,
        schedule=strategy.schedule,
        micro_batches=strategy.pieces(degrees),
    )
    return Parallel(
        _as_module(parts),
        _as_module(wrapped),
        autocast=autocast,
        stages=runner,
        waits_in_python=max(degrees.shard, degrees.tensor, degrees.expert) > 1 or take is not None,
        take=take,
        norm_groups=groups,
    )


def _spread_experts(part: nn.Module, degrees: Degrees, mesh: DeviceMesh) -> None:
    """Spread experts over the ranks that share them, and split each over those that share every
    matrix."""
    shared = {expert.EXPERT: degrees.expert, expert.TENSOR: degrees.tensor}
    dimensions = tuple(name for name, degree in shared.items() if degree > 1)
    if dimensions and expert_layers(part):
        expert.spread(part, mesh[dimensions])


def _as_module(parts: Mapping[int, nn.Module]) -> nn.Module:
    """A rank's stages as one module, keyed by their numbers."""
    return nn.ModuleDict({str(number): part for number, part in parts.items()})


def _autocast_within(stage: nn.Module, cell: TrainingCell, ranks: Ranks) -> None:
    """Run a stage under autocast: the pipeline itself calls stages, also to infer their shapes and
    dtypes."""
    sharded = _sharding(cell)
    if sharded is not None and fsdp.casts_parameters(sharded, cell.precision, stage):
        return
    policy, forward = PrecisionPolicy(cell.precision, ranks.device), stage.forward

    def cast(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the stage takes and gives
        with policy.forward_context():
            return forward(*args, **kwargs)

    stage.forward = cast


def _shard_or_replicate(
    part: nn.Module,
    cell: TrainingCell,
    mesh: DeviceMesh,
    expert_mesh: DeviceMesh | None,
    ranks: Ranks,
) -> nn.Module:
    blocks = repeated_blocks(part)
    checkpoint_blocks(blocks, cell.activation_checkpointing)
    mode = compile_mode(cell)
    if mode is not None:
        # Blocks compiled one by one lose what lies split between them: the backward pass then meets
        # a plain tensor.
        compile_blocks([part] if cell.degrees.tensor > 1 else blocks or [part], mode)
    sharded = _sharding(cell)
    degrees = _degrees_of_parameters(cell)
    if sharded is not None:
        dimensions = ("replicate", "shard") if degrees.replicate > 1 else ("shard",)
        of_experts = None if expert_mesh is None else expert_mesh[dimensions]
        fsdp.shard(part, blocks, mesh[dimensions], sharded, cell.precision, expert_mesh=of_experts)
        if not sharded.offload:
            part.to(ranks.device)  # buffers; parameters are there
        return part
    part.to(ranks.device)
    if expert_mesh is not None:
        names = expert.expert_parameter_names(part)
        return ddp.replicate_beside_experts(part, names, mesh["replicate"])
    if degrees.replicate > 1:
        return ddp.replicate(part, mesh["replicate"])
    return part


def _sharding(cell: TrainingCell) -> Sharded | None:
    """The options of FSDP2, where the cell uses it."""
    return sharding(cell.strategy, cell.degrees)


def _degrees_of_parameters(cell: TrainingCell) -> Degrees:
    """The degrees as parameters have them: ranks that share sequences are copies, or shards."""
    return cell.degrees.beside_context(sharded=_sharding(cell) is not None)


def _mesh(degrees: Degrees, ranks: Ranks) -> DeviceMesh:
    shape = (degrees.pipeline, degrees.replicate, degrees.shard, degrees.tensor)
    return init_device_mesh(ranks.device.type, shape, mesh_dim_names=_DIMENSIONS)


def _expert_mesh(degrees: Degrees, ranks: Ranks) -> DeviceMesh | None:
    """The same ranks with the devices that experts are spread over as a dimension of their own;
    ``None`` where they are not spread."""
    if degrees.expert == 1:
        return None
    shape = (degrees.pipeline, degrees.replicate, degrees.shard, degrees.expert, degrees.tensor)
    return init_device_mesh(ranks.device.type, shape, mesh_dim_names=_EXPERT_DIMENSIONS)


def _split_sequences(workload: Workload, cell: TrainingCell, ranks: Ranks) -> Take:
    """Leave the workload's module this rank's part of every sequence. What the rank then takes of a
    batch."""
    degrees = cell.degrees
    how = _required(workload.context, "split along the sequence", cell)
    within = degrees.expert * degrees.tensor
    shape = (degrees.world_size // (degrees.context * within), degrees.context, within)
    mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=_CONTEXT_DIMENSIONS)
    index, group = degrees.coordinate(ranks.rank).context, mesh["context"].get_group()
    part = context.sequence_part(index, degrees.context, how.length, group)
    context.split(workload.module, how, part)
    if cell.compile:
        context.keep_eager(workload.module)
    return lambda batch: context.take(batch, how, part)


def _norm_groups(degrees: Degrees, mesh: DeviceMesh) -> tuple[dist.ProcessGroup, ...]:
    if degrees.pipeline > 1:
        return (mesh["pipeline"].get_group(),)
    return ()


def _required(split: S | None, verb: str, cell: TrainingCell) -> S:
    if split is None:
        raise ValueError(
            f"{cell.model} cannot be {verb}; choose another model or parallel.strategy"
        )
    return split
