"""Why a cell cannot run on a machine: everything that can be known before it is tried. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchscale.catalog.models import MODELS, InputKind, find_model
from torchscale.schema.cell import Cell, DeviceKind
from torchscale.schema.degrees import Degrees
from torchscale.schema.environment import DeviceInfo
from torchscale.schema.memory import MemoryCell
from torchscale.schema.strategy import Ddp, Fsdp, PipelineBase, is_sequence_parallel
from torchscale.schema.task import AnyCell

_MIN_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
_CUDA_ONLY = ("tf32", "fp8")
_CIFAR_CLASSES = 100
_FSDP_ON_CPUS = (2, 7)
"""From here on torch's CPU streams record events, as FSDP asks of them."""
_PIPELINES_ON_CPUS = (2, 8)
"""Before, torch's schedules wait for the last transfer of a batch alone, as their source says; on gloo they hung with
2.6 and 2.7. That 2.8 waits for all was read there."""


@dataclass(frozen=True)
class Place:
    """Where the cells of a plan would run.

    Attributes:
        device: What the device request resolved to.
        indices: Usable devices in the order in which ranks take them: GPU indices, or cores on CPU.
        threads: CPU threads of every rank.
        devices: What is known of the machine's devices.
        oversubscribe: Whether ranks may share devices.
        torch: Version.
    """

    device: DeviceKind
    indices: tuple[int, ...]
    threads: int
    devices: tuple[DeviceInfo, ...]
    oversubscribe: bool
    torch: str

    @property
    def capacity(self) -> int:
        """Ranks that have a device, or enough cores, of their own."""
        return len(self.indices) // self.threads if self.device == "cpu" else len(self.indices)


def skip_reason(cell: AnyCell, place: Place) -> str | None:
    """Why a cell cannot run, or ``None``."""
    if isinstance(cell, MemoryCell):
        return skip_reason(cell.training, place)
    few = _too_few_devices(cell, place)
    if not isinstance(cell, Cell):
        return few or ("mps is one device" if place.device == "mps" and cell.world_size > 1 else None)
    return (
        few
        or _strategy_obstacle(cell)
        or _compile_obstacle(cell)
        or _batch_obstacle(cell)
        or _model_obstacle(cell)
        or _device_obstacle(cell, place.device)
        or _version_obstacle(cell, place)
        or _precision_obstacle(cell, place)
    )


def _too_few_devices(cell: AnyCell, place: Place) -> str | None:
    capacity, threads = place.capacity, place.threads
    if cell.world_size <= capacity or (place.oversubscribe and capacity > 0):
        return None
    have = f"{capacity} GPU{'s' * (capacity != 1)}"
    if place.device == "cpu":
        have = f"{capacity} CPU rank{'s' * (capacity != 1)} of {threads} core{'s' * (threads != 1)} each"
    return f"needs {cell.world_size} devices; this machine has {have}"


def _strategy_obstacle(cell: Cell) -> str | None:
    """Degrees that do not make the world size, or that the model cannot be split by."""
    try:
        degrees = cell.degrees
    except ValueError as error:
        text = str(error)
        return text if text.startswith("strategy") else f"{cell.strategy.name}: {text}"
    facts = find_model(cell.model)
    for split in cell.strategy.splits:  # also on one device: a baseline alone tells nothing
        if facts is not None and split not in facts.splits:
            able = dict.fromkeys(other.family for other in MODELS.values() if split in other.splits)
            return f"{cell.model} cannot be split by {split}; {' and '.join(sorted(able))} models can, and your own"
    return _shape_obstacle(cell, degrees)


def _shape_obstacle(cell: Cell, degrees: Degrees) -> str | None:
    """Heads, tokens and layers that do not divide, as far as the options tell."""
    options, strategy = cell.model_options, cell.strategy
    facts = find_model(cell.model)
    heads = options.get("num_heads", None if facts is None else facts.heads)
    length, layers = options.get("sequence_length"), options.get("num_layers")
    if isinstance(heads, int) and heads % degrees.tensor:
        return f"{heads} attention heads do not divide over {degrees.tensor} tensor-parallel devices"
    if is_sequence_parallel(strategy) and isinstance(length, int) and length % degrees.tensor:
        return f"{length} tokens do not divide over {degrees.tensor} devices along the sequence"
    if degrees.pipeline > 1 and isinstance(strategy, PipelineBase):
        stages, pieces = strategy.stages(degrees), strategy.pieces(degrees)
        if isinstance(layers, int) and layers < stages:
            return f"{layers} layers do not make {stages} pipeline stages"
        if strategy.schedule == "1f1b" and pieces < stages:
            return f"schedule 1f1b over {stages} stages needs at least {stages} microbatches, not {pieces}"
        if strategy.schedule == "interleaved" and pieces % degrees.pipeline:
            return f"{pieces} microbatches do not divide by the {degrees.pipeline} devices of an interleaved schedule"
    return None


def _compile_obstacle(cell: Cell) -> str | None:
    degrees = cell.degrees
    if cell.compile and degrees.tensor > 1 and degrees.data > 1:
        return "torch.compile fails on tensor parallelism beside copies or shards (seen with PyTorch 2.13)"
    return None


def _batch_obstacle(cell: Cell) -> str | None:
    """A step's samples that cannot be dealt out evenly."""
    if cell.scaling == "strong" and cell.batch_size % cell.world_size:
        return f"global batch {cell.batch_size} does not divide by {cell.world_size} devices"
    degrees = cell.degrees
    pieces, copy = cell.strategy.pieces(degrees), cell.copy_batch_size
    if degrees.pipeline > 1 and cell.gradient_accumulation > 1:
        return "a pipeline cuts the batch into microbatches itself; gradient_accumulation must be 1"
    parts = max(pieces, cell.gradient_accumulation)
    if copy % parts:
        what = "microbatches" if pieces > 1 else "passes"
        return f"the {copy} samples of a step and copy do not divide by {parts} {what}"
    synthetic = cell.data_source.startswith("synthetic")
    epochs = cell.measurement.epochs or cell.measurement.warmup_epochs
    if epochs is not None and synthetic and cell.num_samples < cell.global_batch_size:
        return f"an epoch of {cell.num_samples} samples is less than one global batch of {cell.global_batch_size}"
    return None


def _model_obstacle(cell: Cell) -> str | None:
    facts = find_model(cell.model)
    kind = None if facts is None else facts.input_kind
    if kind is InputKind.TOKENS and cell.channels_last:
        return "channels_last is a memory format of image models"
    if kind is InputKind.TOKENS and cell.data_source == "cifar100":
        return f"cifar100 are images, and {cell.model} takes text"
    classes = cell.model_options.get("num_classes")
    if cell.data_source == "cifar100" and isinstance(classes, int) and classes < _CIFAR_CLASSES:
        return f"cifar100 has {_CIFAR_CLASSES} classes; {cell.model} has num_classes={classes}"
    return None


def _device_obstacle(cell: Cell, device: DeviceKind) -> str | None:
    if device == "mps" and cell.world_size > 1:
        return "mps is one device"
    staged = cell.degrees.pipeline > 1
    if staged and (device == "xpu" or (device == "cuda" and cell.measurement.sync_cuda)):
        return "a pipeline cannot stop its device between micro-batches, as sync_cuda and the clock for xpu do"
    if device != "cuda" and isinstance(cell.strategy, Ddp) and cell.strategy.comm_hook == "bf16":
        return "the bf16 comm hook needs NCCL"
    return None


def _version_obstacle(cell: Cell, place: Place) -> str | None:
    """What an older torch cannot do on CPUs."""
    version = re.match(r"(\d+)\.(\d+)", place.torch)
    if place.device != "cpu" or version is None:
        return None
    found = tuple(map(int, version.groups()))
    degrees = cell.degrees
    needs = [("FSDP", _FSDP_ON_CPUS)] if isinstance(cell.strategy, Fsdp) or degrees.shard > 1 else []
    needs += [("a pipeline", _PIPELINES_ON_CPUS)] if degrees.pipeline > 1 else []
    for what, needed in needs:
        if found < needed:
            return f"{what} on CPUs needs PyTorch {'.'.join(map(str, needed))}; this is {place.torch}"
    return None


def _precision_obstacle(cell: Cell, place: Place) -> str | None:
    if cell.precision == "fp8" and cell.degrees.tensor > 1:
        return "fp8 is not combined with tensor parallelism"
    if cell.precision == "fp16" and cell.degrees.model > 1:
        return "fp16's gradient scaler does not reach over parts of a model; use bf16"
    if place.device != "cuda":
        return f"{cell.precision} exists on CUDA devices only" if cell.precision in _CUDA_ONLY else None
    needed = _MIN_CAPABILITY.get(cell.precision)
    if needed is None:
        return None
    for info in place.devices:
        if info.index not in place.indices[: cell.world_size] or info.compute_capability is None:
            continue
        capability = tuple(int(part) for part in info.compute_capability.split("."))
        if capability < needed:
            wanted = ".".join(map(str, needed))
            return f"{cell.precision} needs compute capability {wanted}; {info.name} has {info.compute_capability}"
    return None
