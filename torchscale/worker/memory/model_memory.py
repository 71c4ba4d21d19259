"""A few steps of a training cell for their memory alone: the bytes of its parts, and the
allocator's peak."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torchscale.schema.cells.memory import MemoryCell, MemoryParts, MemoryRank
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.units import format_bytes
from torchscale.worker.identity import rank_identity
from torchscale.worker.memory.predicted_memory import predict_memory
from torchscale.worker.models import import_model
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.trainer import Trainer

_MEMORY_EVENT = "[memory]"
_MOST_SKIPPED_STEPS = 20
"""fp16's scaler starts at 2**16, halves at every overflow and skips that step: 16 skips reach 1;
four more are margin."""


class LimitExceededError(torch.OutOfMemoryError):
    """A step took more memory than the cell's limit."""


def measure_memory(
    task: LaunchTask, cell: MemoryCell, ranks: Ranks, files: RankFiles
) -> MemoryRank:
    """Build the model, take two steps, and count the bytes of each part. Returns the record of this
    rank.

    Raises:
        torch.OutOfMemoryError: the step does not fit the device or the limit.
    """
    training = cell.training
    files.progress(Progress(phase="building"))
    import_model(training)  # its libraries are not the model's memory
    meter = (
        _CudaMeter(ranks.device, cell.limit_bytes) if ranks.device.type == "cuda" else _HostMeter()
    )
    with meter:
        trainer = Trainer(training, ranks, lambda: files.progress(Progress(phase="preparing data")))
        files.progress(Progress(phase="measuring"))
        take_first_step(trainer, ranks)
        held_parameters = trainer.named_parameters.values()
        gradients = GradientBytes(held_parameters, trainer.optimizer)
        with SavedTensors(trainer.module, held_parameters) as held:
            trainer.run_batch(1)
    activations: int | None = held.peak
    # What is recomputed, or compiled, is kept where these hooks do not see it.
    if training.compile or training.activation_checkpointing != "none":
        activations = None
    parts = MemoryParts(
        parameters=tensor_bytes(held_parameters),
        buffers=tensor_bytes(trainer.module.buffers()),
        gradients=gradients.total,
        optimizer_states=optimizer_bytes(trainer.optimizer),
        activations=activations,
    )
    files.progress(Progress(phase="finishing"))
    trainer.close()
    if cell.limit_bytes is not None and meter.peak_bytes > cell.limit_bytes:
        peak, limit = format_bytes(meter.peak_bytes), format_bytes(cell.limit_bytes)
        if peak == limit:
            peak, limit = f"{meter.peak_bytes:,} bytes", f"{cell.limit_bytes:,} bytes"
        raise LimitExceededError(f"out of memory: {peak} of tensors exceed the limit of {limit}")
    predicted, problem = (None, "")
    if ranks.rank == 0:
        try:
            predicted = predict_memory(training)
        except Exception as error:  # noqa: BLE001 - a model that cannot be traced must not cost what was measured
            problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    return MemoryRank(
        **dict(rank_identity(task, ranks)),
        parts=parts,
        peak_bytes=meter.peak_bytes,
        reserved_bytes=meter.reserved_bytes,
        predicted=predicted,
        not_predicted=problem,
    )


def take_first_step(trainer: Trainer, ranks: Ranks) -> None:
    """Run steps until the optimizer has its states: fp16's scaler skips steps whose gradients
    overflow."""
    for _ in range(_MOST_SKIPPED_STEPS):
        trainer.run_batch(1)
        if ranks.broadcast_scalar(float(optimizer_bytes(trainer.optimizer))) > 0:
            return


class _CudaMeter:
    """Peaks of allocated and reserved bytes of the CUDA allocator, which also enforces the
    limit."""

    def __init__(self, device: torch.device, limit: int | None) -> None:
        self._device, self._limit = device, limit
        self.peak_bytes = 0
        self.reserved_bytes: int | None = None

    def __enter__(self) -> None:
        if self._limit is not None:
            total = torch.cuda.get_device_properties(self._device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, self._limit / total), self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def __exit__(self, *_: object) -> None:
        self.peak_bytes = torch.cuda.max_memory_allocated(self._device)
        self.reserved_bytes = torch.cuda.max_memory_reserved(self._device)
        if self._limit is not None:
            torch.cuda.set_per_process_memory_fraction(1.0, self._device)


class _HostMeter:
    """Peak of allocated bytes on CPU since the start, from the allocations that torch's profiler
    records."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.reserved_bytes: int | None = None
        self._profile = profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
        )

    def __enter__(self) -> None:
        self._profile.start()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._profile.stop()
        results = getattr(self._profile.profiler, "kineto_results", None)
        used = 0
        for event in [] if results is None else results.events():
            if event.name() == _MEMORY_EVENT:
                used += event.nbytes()
                self.peak_bytes = max(self.peak_bytes, used)
        if error is None and self.peak_bytes == 0:
            raise RuntimeError(
                "torch's profiler recorded no allocation, so there is no peak to report"
            )


class GradientBytes:
    """Bytes of gradients right before the next optimizer step."""

    def __init__(
        self, parameters: Collection[nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        self._parameters = parameters
        self._hook = optimizer.register_step_pre_hook(self._note)
        self.total = 0

    def _note(self, *_: object) -> None:
        self.total = tensor_bytes(parameter.grad for parameter in self._parameters)
        self._hook.remove()


class SavedTensors:
    """Peak of the bytes that autograd saves for the backward pass: each storage once, without
    parameters and buffers."""

    def __init__(self, module: nn.Module, parameters: Collection[nn.Parameter]) -> None:
        self._module, self._parameters = module, parameters
        self._users: dict[int, int] = {}
        self._excluded: set[int] = set()
        self._live = 0
        self.peak = 0
        self._around = contextlib.ExitStack()

    def __enter__(self) -> SavedTensors:
        held = itertools.chain(self._parameters, self._module.buffers())
        self._excluded = {_address(part) for tensor in held for part in plain_parts(tensor)}
        for part in self._module.modules():  # FSDP gathers parameters anew in every forward pass
            handle = part.register_forward_pre_hook(self._exclude_parameters)
            self._around.callback(handle.remove)
        self._around.enter_context(
            torch.autograd.graph.saved_tensors_hooks(self._keep, _Kept.unpack)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._around.close()

    def _exclude_parameters(self, part: nn.Module, _: object) -> None:
        self._excluded.update(
            _address(local)
            for parameter in part.parameters(recurse=False)
            for local in plain_parts(parameter)
        )

    def _keep(self, tensor: Tensor) -> _Kept:
        return _Kept(tensor, self)

    def add(self, address: int, size: int) -> bool:
        """Count one more saved tensor in the storage of ``size`` bytes. False for storages that are
        excluded."""
        if address in self._excluded or address == 0:
            return False
        users = self._users.get(address, 0)
        self._users[address] = users + 1
        if users == 0:
            self._live += size
            self.peak = max(self.peak, self._live)
        return True

    def remove(self, address: int, size: int) -> None:
        """Count one saved tensor less in the storage; its bytes are freed with the last one."""
        self._users[address] -= 1
        if self._users[address] == 0:
            del self._users[address]
            self._live -= size


class _Kept:
    """A saved tensor that is counted until autograd frees it."""

    def __init__(self, tensor: Tensor, saved: SavedTensors) -> None:
        self._tensor, self._saved = tensor, saved
        storages = [part.untyped_storage() for part in plain_parts(tensor)]
        sizes = [(storage.data_ptr(), storage.nbytes()) for storage in storages]
        self._counted = [entry for entry in sizes if saved.add(*entry)]

    def unpack(self) -> Tensor:
        """The saved tensor, for autograd's backward pass."""
        return self._tensor

    def __del__(self) -> None:
        for address, size in self._counted:
            self._saved.remove(address, size)


def tensor_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the local parts of ``tensors``, each counted once, also where several share one
    storage (a bucket)."""
    views_by_storage: dict[int, dict[int, int]] = {}
    sizes: dict[int, int] = {}
    for part in (part for tensor in tensors if tensor is not None for part in plain_parts(tensor)):
        storage = part.untyped_storage()
        views = views_by_storage.setdefault(storage.data_ptr(), {})
        views[part.data_ptr()] = max(part.nbytes, views.get(part.data_ptr(), 0))
        sizes[storage.data_ptr()] = storage.nbytes()
    return sum(
        min(sizes[address], sum(views.values())) for address, views in views_by_storage.items()
    )


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all tensors of the optimizer's state on this rank."""
    inner = getattr(
        optimizer, "optim", optimizer
    )  # ZeRO keeps its share in an optimizer of the usual kind
    states = [value for state in inner.state.values() for value in state.values()]
    return tensor_bytes(value for value in states if isinstance(value, Tensor))


def plain_parts(tensor: Tensor) -> list[Tensor]:
    """The plain tensors inside ``tensor``: the local shard of a DTensor, the result of an
    asynchronous collective."""
    wrapper: Any = tensor
    if not is_traceable_wrapper_subclass(wrapper):
        return [tensor]
    names, _ = wrapper.__tensor_flatten__()
    inner = [getattr(wrapper, name) for name in names]  # a device mesh may be among them
    return [
        part
        for component in inner
        if isinstance(component, Tensor)
        for part in plain_parts(component)
    ]


def _address(part: Tensor) -> int:
    return part.untyped_storage().data_ptr()
