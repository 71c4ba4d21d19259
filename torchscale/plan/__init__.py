"""An experiment becomes a plan: the ordered cells, each to be run or skipped with a reason. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchscale.errors import MachineError
from torchscale.plan.ceilings import collectives_cells, hardware_cells, memory_cells
from torchscale.plan.obstacles import Place, skip_reason
from torchscale.plan.placement import bound_cores, ordered
from torchscale.schema.cell import Cell, DeviceKind, Loader, Measurement
from torchscale.schema.config import Experiment
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.machine import Machine
from torchscale.schema.task import AnyCell


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment on one machine.

    Attributes:
        cells: In the order in which they run.
        device: What the device request resolved to.
        device_indices: Usable devices in order: GPU indices, or cores on CPU.
        threads_per_rank: CPU threads of every rank of every cell.
        numa_cores: Cores beside each device, by its index; empty where unknown or not asked for.
        uuids: Of the GPUs, by index, where the driver tells.
    """

    cells: tuple[PlannedCell, ...]
    device: DeviceKind
    device_indices: tuple[int, ...]
    threads_per_rank: int
    numa_cores: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    uuids: Mapping[int, str] = field(default_factory=dict)

    @property
    def to_run(self) -> tuple[AnyCell, ...]:
        """The cells that are not skipped."""
        return tuple(entry.cell for entry in self.cells if entry.skip_reason is None)

    @property
    def training(self) -> tuple[Cell, ...]:
        """Those of them that train."""
        return tuple(cell for cell in self.to_run if isinstance(cell, Cell))

    @property
    def hash(self) -> str:
        """Changes when any cell does."""
        return hashlib.sha256("\n".join(entry.cell.id for entry in self.cells).encode()).hexdigest()[:16]

    def device_indices_of(self, world_size: int) -> tuple[int, ...]:
        """The device of each rank; empty on CPU. Ranks beyond the last device begin again with the first."""
        if self.device == "cpu":
            return ()
        return tuple(self.device_indices[rank % len(self.device_indices)] for rank in range(world_size))

    def uuids_of(self, world_size: int) -> tuple[str, ...]:
        """Of the GPUs that the ranks use, each once."""
        indices = dict.fromkeys(self.device_indices_of(world_size))
        return tuple(self.uuids[index] for index in indices if index in self.uuids)

    def is_oversubscribed(self, world_size: int) -> bool:
        """Whether ranks share devices, or cores on CPU."""
        capacity = len(self.device_indices) // (self.threads_per_rank if self.device == "cpu" else 1)
        return world_size > capacity

    def has_own_cores(self, world_size: int) -> bool:
        """Whether no two ranks share a core."""
        return self.device == "cpu" and not self.is_oversubscribed(world_size)

    def cpu_sets(self, world_size: int) -> tuple[tuple[int, ...], ...] | None:
        """The cores of each rank. On CPU equally many, of its own unless oversubscribed; beside a GPU those of its NUMA
        node, or ``None``: not bound."""
        if self.device != "cpu":
            return bound_cores(self.numa_cores, self.device_indices_of(world_size))
        share = self.threads_per_rank
        capacity = len(self.device_indices) // share
        places = [(rank % capacity) * share for rank in range(world_size)]
        return tuple(self.device_indices[place : place + share] for place in places)


def make_plan(experiment: Experiment, machine: Machine) -> Plan:
    """Expand the axes into cells and say which of them this machine cannot run.

    Raises:
        MachineError: the experiment asks for a device that is not here.
    """
    device = _resolve_device(experiment, machine)
    available = _available_devices(device, machine)
    indices = _chosen_devices(experiment, device, available)
    devices = machine.environment.devices if device != "cpu" else ()
    if experiment.launch.devices == "auto":
        indices = ordered(indices, devices, experiment.launch.placement)
    counts = _world_sizes(experiment, len(indices))
    threads = _threads_per_rank(experiment, device, counts, indices, machine)
    torch = machine.environment.versions.torch
    place = Place(device, indices, threads, devices, experiment.launch.oversubscribe, torch)
    cells = tuple(
        PlannedCell(cell=cell, skip_reason=skip_reason(cell, place)) for cell in _expand(experiment, device, counts)
    )
    numa_cores = machine.cores_beside(devices) if experiment.launch.numa_binding else {}
    uuids = {info.index: info.uuid for info in devices if info.uuid is not None}
    return Plan(cells, device, indices, threads, numa_cores, uuids)


def _resolve_device(experiment: Experiment, machine: Machine) -> DeviceKind:
    wanted, environment = experiment.device, machine.environment
    if wanted == "cpu":
        return "cpu"
    if wanted in ("mps", "xpu"):
        if any(info.kind == wanted for info in environment.devices):
            return wanted
        raise MachineError(f"device: {wanted}, but PyTorch sees no such device here")
    if environment.cuda_available:
        return "cuda"
    if wanted == "cuda":
        raise MachineError(
            "device: cuda, but PyTorch sees no CUDA device here",
            hint="run `torchscale validate --require cuda` for why",
        )
    return "cpu"


def _available_devices(device: DeviceKind, machine: Machine) -> tuple[int, ...]:
    if device == "cpu":
        return machine.cores
    return tuple(info.index for info in machine.environment.devices if info.kind == device)


def _chosen_devices(experiment: Experiment, device: DeviceKind, available: tuple[int, ...]) -> tuple[int, ...]:
    chosen = experiment.launch.devices
    if isinstance(chosen, str):
        return available
    missing = [index for index in chosen if index not in available]
    if missing:
        noun = "cores" if device == "cpu" else "GPUs"
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


def _expand(experiment: Experiment, device: DeviceKind, counts: tuple[int, ...]) -> list[AnyCell]:
    """The cells of every kind that is measured: the machine's ceilings before what is held against them."""
    training = _training_cells(experiment, counts)
    return [
        *(hardware_cells(experiment, device, counts) if "hardware" in experiment.measure else ()),
        *(collectives_cells(experiment, device, counts) if "collectives" in experiment.measure else ()),
        *(memory_cells(experiment, training) if "memory" in experiment.measure else ()),
        *(training if "training" in experiment.measure else ()),
    ]


def _training_cells(experiment: Experiment, counts: tuple[int, ...]) -> list[Cell]:
    training, model, measurement = experiment.training, experiment.model, _measurement(experiment)
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
            fused=fused,
            gradient_accumulation=accumulation,
            activation_checkpointing=checkpointing,
            gradient_clipping=training.gradient_clipping,
            deterministic=training.deterministic,
            learning_rate=training.learning_rate,
            channels_last=channels_last,
            compile=compiled,
            seed=training.seed,
            cudnn_benchmark=training.cudnn_benchmark,
            data_source=source,
            loader=None if source == "synthetic" else _loader(experiment),
            num_samples=experiment.data.num_samples,
            measurement=measurement,
        )
        for choice in experiment.models
        for precision in training.precision
        for optimizer in training.optimizer
        for fused in training.fused
        for accumulation in training.gradient_accumulation
        for checkpointing in training.activation_checkpointing
        for strategy in experiment.parallel.strategy
        for channels_last in model.channels_last
        for compiled in model.compile
        for source in experiment.data.source
        for batch_size in experiment.batch_sizes
        for count in counts
    ]


def _measurement(experiment: Experiment) -> Measurement:
    fields = set(Measurement.model_fields) - {"epochs", "warmup_epochs"}
    training = experiment.training
    return Measurement(
        epochs=training.epochs,
        warmup_epochs=training.warmup_epochs,
        **experiment.benchmark.model_dump(include=fields),
    )


def _loader(experiment: Experiment) -> Loader:
    return Loader(**experiment.data.model_dump(include=set(Loader.model_fields)))
