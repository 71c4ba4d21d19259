"""An experiment becomes a plan: the ordered cells, each to be run or skipped with a reason. Pure."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass

from torchscale.catalog.models import MODELS, InputKind
from torchscale.errors import MachineError
from torchscale.schema.cell import Cell, DeviceKind, Measurement
from torchscale.schema.config import Experiment
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.machine import Machine

_MIN_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0)}


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment on one machine.

    Attributes:
        cells: In the order in which they run.
        device: What the device request resolved to.
        device_indices: Usable devices in order: GPU indices, or cores on CPU.
        threads_per_rank: CPU threads of every rank of every cell.
    """

    cells: tuple[PlannedCell, ...]
    device: DeviceKind
    device_indices: tuple[int, ...]
    threads_per_rank: int

    @property
    def to_run(self) -> tuple[Cell, ...]:
        """The cells that are not skipped."""
        return tuple(entry.cell for entry in self.cells if entry.skip_reason is None)

    @property
    def hash(self) -> str:
        """Changes when any cell does."""
        return hashlib.sha256("\n".join(entry.cell.id for entry in self.cells).encode()).hexdigest()[:16]

    def cpu_sets(self, world_size: int) -> tuple[tuple[int, ...], ...] | None:
        """The cores of each rank on CPU, disjoint and equally many; ``None`` on CUDA, where ranks are not pinned."""
        if self.device != "cpu":
            return None
        share = self.threads_per_rank
        return tuple(self.device_indices[rank * share : (rank + 1) * share] for rank in range(world_size))


def make_plan(experiment: Experiment, machine: Machine) -> Plan:
    """Expand the axes into cells and say which of them this machine cannot run.

    Raises:
        MachineError: the experiment asks for a device that is not here.
    """
    device = _resolve_device(experiment, machine)
    available = _available_devices(device, machine)
    indices = _chosen_devices(experiment, device, available)
    counts = _world_sizes(experiment, len(indices))
    threads = _threads_per_rank(experiment, device, counts, indices, machine)
    cells = tuple(
        PlannedCell(cell=cell, skip_reason=_skip_reason(cell, device, indices, threads, machine))
        for cell in _expand(experiment, counts)
    )
    return Plan(cells, device, indices, threads)


def _resolve_device(experiment: Experiment, machine: Machine) -> DeviceKind:
    if experiment.device == "cpu":
        return "cpu"
    if machine.environment.cuda_available:
        return "cuda"
    if experiment.device == "cuda":
        raise MachineError(
            "device: cuda, but PyTorch sees no CUDA device here",
            hint="run `torchscale validate --require cuda` for why",
        )
    return "cpu"


def _available_devices(device: DeviceKind, machine: Machine) -> tuple[int, ...]:
    if device == "cuda":
        return tuple(info.index for info in machine.environment.devices)
    return machine.cores


def _chosen_devices(experiment: Experiment, device: DeviceKind, available: tuple[int, ...]) -> tuple[int, ...]:
    chosen = experiment.launch.devices
    if isinstance(chosen, str):
        return available
    missing = [index for index in chosen if index not in available]
    if missing:
        noun = "GPUs" if device == "cuda" else "cores"
        raise MachineError(
            f"launch.devices: {', '.join(map(str, missing))} not among the usable {noun} "
            f"({', '.join(map(str, available))})"
        )
    return chosen


def _world_sizes(experiment: Experiment, devices: int) -> tuple[int, ...]:
    if experiment.gpu_counts != "auto":
        return tuple(experiment.gpu_counts)
    powers = [1 << exponent for exponent in range(devices.bit_length()) if 1 << exponent <= devices]
    return tuple(powers if powers[-1] == devices else [*powers, devices])


def _threads_per_rank(
    experiment: Experiment, device: DeviceKind, counts: tuple[int, ...], indices: tuple[int, ...], machine: Machine
) -> int:
    """Equal for every count of a plan, so that efficiency compares like with like: cores ÷ the largest that fits."""
    if experiment.launch.threads_per_rank is not None:
        wanted = experiment.launch.threads_per_rank
        if device == "cpu" and wanted > len(indices):
            raise MachineError(f"launch.threads_per_rank: {wanted} exceeds the {len(indices)} usable cores")
        return wanted
    cores = indices if device == "cpu" else machine.cores
    largest = max((count for count in counts if count <= len(indices)), default=1)
    return max(1, len(cores) // largest)


def _expand(experiment: Experiment, counts: tuple[int, ...]) -> list[Cell]:
    training, model, measurement = experiment.training, experiment.model, _measurement(experiment)
    axes = itertools.product(
        experiment.models,
        training.precision,
        training.optimizer,
        experiment.parallel.strategy,
        model.channels_last,
        model.compile,
        experiment.batch_sizes,
        counts,
    )
    return [
        Cell(
            model=choice.name,
            model_options=experiment.options_of(choice),
            batch_size=batch_size,
            scaling=experiment.scaling,
            world_size=count,
            device=experiment.device,
            precision=precision,
            strategy=strategy,
            optimizer=optimizer,
            learning_rate=training.learning_rate,
            channels_last=channels_last,
            compile=compiled,
            seed=training.seed,
            cudnn_benchmark=training.cudnn_benchmark,
            data_source=experiment.data.source,
            num_samples=experiment.data.num_samples,
            measurement=measurement,
        )
        for choice, precision, optimizer, strategy, channels_last, compiled, batch_size, count in axes
    ]


def _measurement(experiment: Experiment) -> Measurement:
    fields = set(Measurement.model_fields) - {"epochs"}
    return Measurement(epochs=experiment.training.epochs, **experiment.benchmark.model_dump(include=fields))


def _skip_reason(
    cell: Cell, device: DeviceKind, indices: tuple[int, ...], threads: int, machine: Machine
) -> str | None:
    """Why this machine cannot run a cell, or ``None``."""
    capacity = len(indices) if device == "cuda" else len(indices) // threads
    if cell.world_size > capacity:
        have = f"{capacity} GPU{'s' * (capacity != 1)}"
        if device == "cpu":
            have = f"{capacity} CPU rank{'s' * (capacity != 1)} of {threads} core{'s' * (threads != 1)} each"
        return f"needs {cell.world_size} devices; this machine has {have}"
    if cell.strategy == "none" and cell.world_size > 1:
        return f"strategy none runs on one device, not {cell.world_size}"
    if cell.scaling == "strong" and cell.batch_size % cell.world_size:
        return f"global batch {cell.batch_size} does not divide by {cell.world_size} devices"
    if cell.measurement.epochs is not None and cell.num_samples < cell.global_batch_size:
        return f"an epoch of {cell.num_samples} samples is less than one global batch of {cell.global_batch_size}"
    facts = MODELS.get(cell.model)
    if cell.channels_last and facts is not None and facts.input_kind is not InputKind.IMAGE:
        return "channels_last is a memory format of image models"
    return _precision_obstacle(cell, device, indices, machine)


def _precision_obstacle(cell: Cell, device: DeviceKind, indices: tuple[int, ...], machine: Machine) -> str | None:
    if device == "cpu":
        return "tf32 exists on CUDA devices only" if cell.precision == "tf32" else None
    needed = _MIN_CAPABILITY.get(cell.precision)
    if needed is None:
        return None
    for info in machine.environment.devices:
        if info.index not in indices[: cell.world_size] or info.compute_capability is None:
            continue
        capability = tuple(int(part) for part in info.compute_capability.split("."))
        if capability < needed:
            wanted = ".".join(map(str, needed))
            return f"{cell.precision} needs compute capability {wanted}; {info.name} has {info.compute_capability}"
    return None
