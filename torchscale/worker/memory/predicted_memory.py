"""The memory of a training step without running it: torch's memory tracker over a step of fake
tensors on one device, and arithmetic for what a strategy adds or shards.

The fake tensors are on CUDA where torch has it, else on CPU; the memory of attention is then that
of the CPU kernels.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.weak import WeakIdKeyDictionary

from torchscale.config.strategies.data_parallel import Ddp, NoStrategy, Zero1
from torchscale.config.strategy import sharding
from torchscale.schema.cells.memory import MemoryParts, PredictedMemory, why_unpredicted
from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.data.synthetic import POOL_STEPS, to_device
from torchscale.worker.models import build_workload
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import ContextSplit, Workload
from torchscale.worker.models.sequence import SequencePart
from torchscale.worker.optimizer import make_optimizer
from torchscale.worker.parallel import context
from torchscale.worker.parallel.blocks import checkpoint_blocks, repeated_blocks
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.precision import PrecisionPolicy

_TRACKED = "torch's memory tracker under fake tensors"
_SHARED = ("parameters", "gradients", "optimizer_states")
"""Parts that strategies share out over devices."""


def predict_memory(cell: TrainingCell) -> PredictedMemory:
    """Predict the bytes that a training cell takes on one device.

    Raises:
        ValueError: there is no prediction for the strategy, for fp8 and narrower types, or for
            compiled models.
        Exception: whatever the model raises if its forward pass depends on its inputs' values.
    """
    reason = why_unpredicted(cell)
    if reason:
        raise ValueError(reason)
    degrees, strategy = cell.degrees, cell.strategy
    single_device = {
        "strategy": NoStrategy(name="none"),
        "world_size": 1,
        "scaling": "weak",
        "batch_size": cell.copy_batch_size,
    }
    tracked = _track(cell.model_copy(update=single_device).model_dump_json(), degrees.context)
    if cell.world_size == 1:
        return PredictedMemory(parts=tracked.parts, peak_bytes=tracked.peak_bytes, method=_TRACKED)
    parts, method, peak = tracked.parts, _TRACKED, tracked.peak_bytes
    is_sharded = sharding(strategy, degrees) is not None
    if degrees.context > 1:
        method += f"; 1/{degrees.context} of each sequence, with the keys and values of all of it"
    degrees = degrees.beside_context(sharded=is_sharded)
    if is_sharded or degrees.expert > 1:
        beside = degrees.beside_experts(sharded=is_sharded).shard
        of_experts = degrees.expert * degrees.shard
        factor = (1 - tracked.expert_share) / beside + tracked.expert_share / of_experts
        kept = {name: int(getattr(parts, name) * factor) for name in _SHARED}
        peak -= sum(getattr(parts, name) - value for name, value in kept.items())
        parts = parts.model_copy(update=kept)
        if degrees.expert > 1:
            method += f"; experts ÷ {of_experts}, tokens spread evenly over them"
    if is_sharded:
        method += (
            f"; parameters, gradients and states ÷ {beside}, without what is gathered for a block"
        )
        return PredictedMemory(parts=parts, peak_bytes=peak, method=method)
    if isinstance(strategy, Zero1):
        states = parts.optimizer_states // cell.world_size
        peak -= parts.optimizer_states - states
        parts = parts.model_copy(update={"optimizer_states": states})
        method += f"; states ÷ {cell.world_size}"
    view = isinstance(strategy, Ddp) and strategy.gradient_as_bucket_view
    buckets = 0
    if not view:
        of_experts = int(tracked.parts.gradients * tracked.expert_share / degrees.expert)
        buckets = parts.gradients - (of_experts if degrees.expert > 1 else 0)
        method += "; gradients once more, for DDP's buckets"
    return PredictedMemory(parts=parts, peak_bytes=peak + buckets, method=method)


@dataclass(frozen=True)
class _Tracked:
    """Parts and peak on one device, as torch's tracker counts them; and the share of the
    parameters that are of experts."""

    parts: MemoryParts
    peak_bytes: int
    expert_share: float


@functools.lru_cache(maxsize=8)  # cells that differ in world size alone follow each other in a plan
def _track(content: str, parts: int) -> _Tracked:
    """Track a step of the whole model on one device, which has one of so many ``parts`` of each
    sequence; ``content`` is its cell as JSON. Cached, since cells of other world sizes and
    strategies have the same content."""
    cell = TrainingCell.model_validate_json(content)
    # Whose kernels are chosen: those of fake CUDA tensors end the process where torch has no CUDA.
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with FakeTensorMode(allow_non_fake_inputs=True), _seed_kept():
        with torch.device("meta"):  # where initialization reads no values back
            workload = build_workload(cell)
        module = _on_device(workload.module, device, channels_last=cell.channels_last).train()
        part = _part_of_sequences(workload, parts)
        if part is not None:
            context.split(module, *part)
        checkpoint_blocks(repeated_blocks(module), cell.activation_checkpointing)
        precision = PrecisionPolicy(cell.precision, device)
        optimizer = make_optimizer(cell, Parallel(module, module))
        pieces = cell.gradient_accumulation
        batch = workload.make_batch(cell.copy_batch_size, torch.Generator().manual_seed(0))
        batch = {
            name: to_device(tensor, device, channels_last=cell.channels_last)
            for name, tensor in batch.items()
        }
        batch_bytes = sum(tensor.untyped_storage().nbytes() for tensor in batch.values())
        if part is not None:
            batch = context.take(batch, *part)
        # The first step creates the optimizer's states; it is not tracked.
        for parameter in module.parameters():
            parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tracker = _WholeTracker()
        tracker.track_external(module, optimizer)
        passes = [
            {name: tensor.chunk(pieces)[number] for name, tensor in batch.items()}
            for number in range(pieces)
        ]
        with tracker, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hooks that it cannot set on inputs
            for micro_batch in passes:
                tracker.reset_mod_stats()  # without it, the tracker raises at a second pass
                with precision.forward_context():
                    loss = workload.loss_of(module(**workload.inputs(micro_batch)), micro_batch)
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        peaks = {where.type: parts for where, parts in tracker.get_tracker_snapshot("peak").items()}
        by_part = {
            str(getattr(kind, "value", kind)): count for kind, count in peaks[device.type].items()
        }
    activations: int | None = by_part.get("Activation", 0)
    if cell.activation_checkpointing != "none":
        activations = None
    return _Tracked(
        MemoryParts(
            parameters=by_part.get("Parameter", 0),
            buffers=by_part.get("Buffer", 0),
            gradients=sum(
                parameter.numel() * parameter.element_size()
                for parameter in module.parameters()
                if parameter.requires_grad
            ),
            optimizer_states=by_part.get("Optstate", 0),
            activations=activations,
        ),
        by_part["Total"] + POOL_STEPS * batch_bytes,
        _expert_share(module),
    )


def _part_of_sequences(workload: Workload, parts: int) -> tuple[ContextSplit, SequencePart] | None:
    """The first of so many parts, which take the same memory; ``None`` for whole sequences.

    Raises:
        ValueError: the model's sequences cannot be split.
    """
    if parts == 1:
        return None
    how = workload.context
    if how is None:
        raise ValueError("the model's sequences cannot be split over devices")
    return how, context.sequence_part(0, parts, how.length, None)


def _expert_share(module: nn.Module) -> float:
    experts = [layer.experts for layer in expert_layers(module)]
    of_experts = sum(part.numel() for one in experts for part in one.parameters())
    return of_experts / max(1, sum(parameter.numel() for parameter in module.parameters()))


class _WholeTracker(MemTracker):  # type: ignore[no-untyped-call]
    """Tracks the peak of the whole model only. The original also updates the peak of every module
    at each operation, which takes most of its time in a deep model."""

    def _update_peak_stats(self, peak_state: Any) -> None:  # noqa: ANN401 - a private name of torch's
        modules, self.memory_tracking = self.memory_tracking, WeakIdKeyDictionary()
        super()._update_peak_stats(peak_state)
        self.memory_tracking = modules


def _on_device(module: nn.Module, device: torch.device, *, channels_last: bool) -> nn.Module:
    """``module`` with fake tensors of ``device`` in place of the meta device's, so that its kernels
    are chosen: on the meta device attention keeps its whole matrix. ``Module.to`` cannot exchange
    fake tensors."""
    made: dict[Tensor, nn.Parameter] = {}  # parameters may be shared, and must stay so
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                layout = torch.preserve_format
                if channels_last and parameter.dim() == 4:
                    layout = torch.channels_last
                fake = torch.empty_like(parameter, device=device, memory_format=layout)
                part._parameters[name] = made.setdefault(
                    parameter, nn.Parameter(fake, parameter.requires_grad)
                )
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty_like(buffer, device=device)
    return module


@contextlib.contextmanager
def _seed_kept() -> Iterator[None]:
    """Restore the state of torch's CPU random generator afterwards."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
