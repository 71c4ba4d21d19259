"""The memory of a training step without running it: torch's memory tracker over a step of fake tensors on one
device, and arithmetic for what a strategy adds or shares out.

The fake tensors are CUDA's where torch has it, else the CPU's; attention then takes what the CPU's kernels take.
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

from torchscale.schema.cell import Cell
from torchscale.schema.memory import MemoryParts, PredictedMemory
from torchscale.schema.strategy import Ddp, Fsdp, NoStrategy, Zero1
from torchscale.worker.data.synthetic import POOL_STEPS, place
from torchscale.worker.models import build_workload
from torchscale.worker.optimizer import make_optimizer
from torchscale.worker.parallel.blocks import checkpoint_blocks, repeated_blocks
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.precision import PrecisionPolicy

_TRACKED = "torch's memory tracker under fake tensors"


def predict_memory(cell: Cell) -> PredictedMemory:
    """Bytes on one device of a training cell.

    Raises:
        ValueError: there is no prediction for its strategy or its precision.
        Exception: whatever a model raises that looks at its inputs' values.
    """
    degrees, strategy = cell.degrees, cell.strategy
    if degrees.model > 1 or not isinstance(strategy, NoStrategy | Ddp | Zero1 | Fsdp):
        raise ValueError(f"no prediction for strategy {strategy.name}")
    if cell.precision == "fp8" or cell.compile:
        raise ValueError(f"no prediction for {'fp8' if cell.precision == 'fp8' else 'compiled models'}")
    alone = {
        "strategy": NoStrategy(name="none"),
        "world_size": 1,
        "scaling": "weak",
        "batch_size": cell.copy_batch_size,
    }
    tracked = _track(cell.model_copy(update=alone).model_dump_json())
    if cell.world_size == 1:
        return PredictedMemory(parts=tracked.parts, peak_bytes=tracked.peak_bytes, method=_TRACKED)
    parts, method, peak = tracked.parts, _TRACKED, tracked.peak_bytes
    if isinstance(strategy, Fsdp):
        shards = degrees.shard
        kept = {
            "parameters": parts.parameters // shards,
            "gradients": parts.gradients // shards,
            "optimizer_states": parts.optimizer_states // shards,
        }
        saved = sum(getattr(parts, name) - value for name, value in kept.items())
        return PredictedMemory(
            parts=parts.model_copy(update=kept),
            peak_bytes=peak - saved,
            method=f"{method}; parameters, gradients and states ÷ {shards}, without what is gathered for a block",
        )
    if isinstance(strategy, Zero1):
        states = parts.optimizer_states // cell.world_size
        peak -= parts.optimizer_states - states
        parts = parts.model_copy(update={"optimizer_states": states})
        method += f"; states ÷ {cell.world_size}"
    view = isinstance(strategy, Ddp) and strategy.gradient_as_bucket_view
    buckets = 0 if view else parts.gradients
    method += "" if view else "; gradients once more, for DDP's buckets"
    return PredictedMemory(parts=parts, peak_bytes=peak + buckets, method=method)


@dataclass(frozen=True)
class _Tracked:
    """What the tracker saw on one device."""

    parts: MemoryParts
    peak_bytes: int


@functools.lru_cache(maxsize=8)
def _track(content: str) -> _Tracked:
    """A step of the whole model on one device; ``content`` is its cell as JSON. Kept, since cells of other counts and
    strategies share it."""
    cell = Cell.model_validate_json(content)
    # Whose kernels are chosen: those of fake CUDA tensors end the process where torch has no CUDA.
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with FakeTensorMode(allow_non_fake_inputs=True), _seed_kept():
        with torch.device("meta"):  # where initialisation reads no values back
            workload = build_workload(cell)
        module = _on_device(workload.module, device, channels_last=cell.channels_last).train()
        checkpoint_blocks(repeated_blocks(module), cell.activation_checkpointing)
        precision = PrecisionPolicy(cell.precision, device)
        optimizer = make_optimizer(cell, Parallel(module, module))
        pieces = cell.gradient_accumulation
        batch = workload.make_batch(cell.copy_batch_size, torch.Generator().manual_seed(0))
        batch = {name: place(tensor, device, channels_last=cell.channels_last) for name, tensor in batch.items()}
        # The optimizer's states are there from its first step on; this one nobody needs to follow.
        for parameter in module.parameters():
            parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tracker = _WholeTracker()
        tracker.track_external(module, optimizer)
        passes = [{name: tensor.chunk(pieces)[number] for name, tensor in batch.items()} for number in range(pieces)]
        with tracker, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hooks that it cannot set on inputs
            for one in passes:
                tracker.reset_mod_stats()  # it takes a second pass in a row for an error
                with precision.forward_context():
                    loss = workload.loss_of(module(**workload.inputs(one)), one)
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        peaks = {where.type: parts for where, parts in tracker.get_tracker_snapshot("peak").items()}
        batch_bytes = sum(tensor.untyped_storage().nbytes() for tensor in batch.values())
        by_part = {str(getattr(kind, "value", kind)): count for kind, count in peaks[device.type].items()}
    return _Tracked(
        MemoryParts(
            parameters=by_part.get("Parameter", 0),
            buffers=by_part.get("Buffer", 0),
            gradients=sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad),
            optimizer_states=by_part.get("Optstate", 0),
            activations=None if cell.activation_checkpointing != "none" else by_part.get("Activation", 0),
        ),
        by_part["Total"] + POOL_STEPS * batch_bytes,
    )


class _WholeTracker(MemTracker):  # type: ignore[no-untyped-call]
    """Follows the peak of the whole. The original looks after every operation for each module's own too, which nobody
    here asks for and which takes most of its time in a deep model."""

    def _update_peak_stats(self, peak_state: Any) -> None:  # noqa: ANN401 - a private name of torch's
        modules, self.memory_tracking = self.memory_tracking, WeakIdKeyDictionary()
        super()._update_peak_stats(peak_state)
        self.memory_tracking = modules


def _on_device(module: nn.Module, device: torch.device, *, channels_last: bool) -> nn.Module:
    """``module`` with fake tensors of ``device`` in place of the meta device's, so that its kernels are chosen: on the
    meta device attention keeps its whole matrix. ``Module.to`` cannot exchange fake tensors."""
    made: dict[Tensor, nn.Parameter] = {}  # parameters may be shared, and must stay so
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                layout = torch.channels_last if channels_last and parameter.dim() == 4 else torch.preserve_format
                fake = torch.empty_like(parameter, device=device, memory_format=layout)
                part._parameters[name] = made.setdefault(parameter, nn.Parameter(fake, parameter.requires_grad))
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty_like(buffer, device=device)
    return module


@contextlib.contextmanager
def _seed_kept() -> Iterator[None]:
    """Leave torch's random numbers as they were."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
