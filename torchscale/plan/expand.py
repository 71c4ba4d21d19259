"""Expands an experiment into a plan: the ordered cells, each to be run or skipped with a reason.
Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchscale.catalog.devices import find_device
from torchscale.config.choices import DeviceKind, Malloc
from torchscale.config.experiment import Experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.sections.models import ModelChoice
from torchscale.errors import ConfigError
from torchscale.plan.devices import (
    available_devices,
    chosen_devices,
    devices_per_node_of,
    local_counts,
    refuse_split_nodes,
    resolve_device,
    threads_per_rank_of,
    world_sizes,
)
from torchscale.plan.execution_target import ExecutionTarget
from torchscale.plan.kinds import plan_kind
from torchscale.plan.placement import bound_cores, ordered
from torchscale.schema.cells.kinds import KINDS, AnyCell, of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.node.machine import Machine
from torchscale.schema.run.experiment_file import PlannedCell

_CORE_FLOPS: Mapping[str, float] = {"fp32": 320e9, "bf16": 8e12, "fp16": 8e12}
"""No CPU core does more: two 512-bit fused multiply-adds a cycle at 5 GHz, and for the short types
a matrix unit (AMX) of 1,024 pairs a cycle at under 4 GHz."""


MAX_CELLS = 20_000
"""Maximum number of cells of a plan, and MAX_LAUNCHES of its repeats: at ten seconds a launch they
take days. ``experiment.json`` holds every cell, and of 20,000 it has half of the 64 MiB that a
reader takes."""
MAX_LAUNCHES = 100_000


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment on one machine.

    Attributes:
        cells: Cells in the order in which they run.
        device: What the device request resolved to.
        device_indices: Usable devices in order: GPU indices, or cores on CPU.
        threads_per_rank: CPU threads of every rank of every cell.
        malloc: Whether glibc keeps the memory that a step frees.
        numa_cores: Cores of each device's NUMA node, by device index; empty where unknown or not
            requested.
        uuids: UUIDs of the GPUs by index, as far as the driver reports them.
        peak_flops: FLOP/s that no device exceeds, by dtype: documented for GPUs, a bound for the
            cores of a CPU rank; empty where they are not known.
        nodes: Number of nodes of the sweep; ``device_indices`` and all that follows from them are
            of this one.
        devices_per_node: Ranks on each node of a world size that needs several; ``None`` on a
            single node without such a limit.
    """

    cells: tuple[PlannedCell, ...]
    device: DeviceKind
    device_indices: tuple[int, ...]
    threads_per_rank: int
    numa_cores: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    uuids: Mapping[int, str] = field(default_factory=dict)
    peak_flops: Mapping[str, float] = field(default_factory=dict)
    malloc: Malloc = "keep"
    nodes: int = 1
    devices_per_node: int | None = None

    @property
    def to_run(self) -> tuple[AnyCell, ...]:
        """The cells that are not skipped."""
        return tuple(entry.cell for entry in self.cells if entry.skip_reason is None)

    @property
    def training(self) -> tuple[TrainingCell, ...]:
        """The training cells that are not skipped."""
        return of_kind(self.to_run, TrainingCell)

    @property
    def hash(self) -> str:
        """Hash over the ids of all cells: changes when any cell does."""
        return hashlib.sha256(
            "\n".join(entry.cell.id for entry in self.cells).encode()
        ).hexdigest()[:16]

    def local_size(self, world_size: int) -> int:
        """Ranks that a world size has on each of its nodes."""
        if self.devices_per_node is None:
            return world_size
        return min(world_size, self.devices_per_node)

    def nodes_of(self, world_size: int) -> int:
        """Nodes that a world size needs: the fewest."""
        return -(-world_size // self.local_size(world_size))

    def device_indices_of(self, world_size: int) -> tuple[int, ...]:
        """The device index of each rank of a node; empty on CPU. Ranks beyond the last device start
        again with the first."""
        if self.device == "cpu":
            return ()
        ranks = range(self.local_size(world_size))
        return tuple(self.device_indices[rank % len(self.device_indices)] for rank in ranks)

    def uuids_of(self, world_size: int) -> tuple[str, ...]:
        """UUIDs of the GPUs that the ranks of a node use, each once."""
        indices = dict.fromkeys(self.device_indices_of(world_size))
        return tuple(self.uuids[index] for index in indices if index in self.uuids)

    def is_oversubscribed(self, world_size: int) -> bool:
        """Whether ranks share devices, or cores on CPU."""
        capacity = len(self.device_indices)
        if self.device == "cpu":
            capacity //= self.threads_per_rank
        return self.local_size(world_size) > capacity

    def has_exclusive_cores(self, world_size: int) -> bool:
        """Whether no two ranks share a core."""
        return self.device == "cpu" and not self.is_oversubscribed(world_size)

    def cpu_sets(self, world_size: int) -> tuple[tuple[int, ...], ...] | None:
        """The cores of each rank of a node: on CPU equally many, disjoint unless oversubscribed;
        with a GPU those of its NUMA node. ``None``: ranks are not pinned."""
        if self.device != "cpu":
            return bound_cores(self.numa_cores, self.device_indices_of(world_size))
        share = self.threads_per_rank
        capacity = len(self.device_indices) // share
        offsets = [(rank % capacity) * share for rank in range(self.local_size(world_size))]
        return tuple(self.device_indices[offset : offset + share] for offset in offsets)


def make_plan(experiment: Experiment, machine: Machine) -> Plan:
    """Expand the axes into cells, with a reason for each that this machine cannot run.

    Raises:
        MachineError: the machine lacks a device, core or thread count that the experiment requests.
        ConfigError: there are more than :data:`MAX_CELLS` cells, or :data:`MAX_LAUNCHES` launches
            of them.
    """
    device = resolve_device(experiment, machine)
    available = available_devices(device, machine)
    indices = chosen_devices(experiment, device, available)
    devices = machine.environment.devices if device != "cpu" else ()
    if experiment.launch.devices == "auto":
        indices = ordered(indices, devices, experiment.launch.placement)
    per_node = devices_per_node_of(experiment, device, len(indices))
    counts = world_sizes(experiment, per_node or len(indices))
    refuse_split_nodes(counts, experiment.launch.nodes, per_node)
    on_a_node = local_counts(counts, per_node)
    threads = threads_per_rank_of(experiment, device, on_a_node, indices, machine.cores)
    versions = machine.environment.versions
    fixed = experiment.launch.threads_per_rank is not None
    _refuse_too_many(experiment, len(counts))
    nodes = experiment.launch.nodes
    target = ExecutionTarget(
        device,
        indices,
        threads,
        devices,
        experiment.launch.oversubscribe,
        versions.torch,
        fixed,
        nodes,
        per_node,
        versions.torchao,
    )
    cells = tuple(
        PlannedCell(cell=cell, skip_reason=plan_kind(cell.kind).skip_reason(cell, target))
        for cell in _expand(experiment, device, counts)
    )
    numa_cores = machine.cores_beside(devices) if experiment.launch.numa_binding else {}
    uuids = {info.index: info.uuid for info in devices if info.uuid is not None}
    cpu_peaks = {dtype: threads * rate for dtype, rate in _CORE_FLOPS.items()}
    peaks = cpu_peaks if device == "cpu" else _documented_peaks(devices, indices)
    malloc = experiment.launch.malloc
    return Plan(cells, device, indices, threads, numa_cores, uuids, peaks, malloc, nodes, per_node)


def _refuse_too_many(experiment: Experiment, counts: int) -> None:
    """Refuse an experiment of too many combinations before any cell is made: a few lines can mean
    millions.

    Raises:
        ConfigError: the axes have too many combinations.
    """
    cells = 0
    for kind in ("training", "memory", "checkpoint"):
        if kind in experiment.measure:
            lengths = {**_axis_lengths(experiment), "gpu_counts": counts}
            cells += math.prod(lengths.values())
            if cells > MAX_CELLS:
                axes = " × ".join(
                    f"{length:,} {name}" for name, length in lengths.items() if length > 1
                )
                raise ConfigError(
                    f"{cells:,} cells ({axes}); at most {MAX_CELLS:,} fit one run",
                    hint="split it into several experiments, or leave out values",
                )
    launches = max(cells, 1) * experiment.benchmark.repeats
    if launches > MAX_LAUNCHES:
        raise ConfigError(
            f"{launches:,} launches ({max(cells, 1):,} cells × benchmark.repeats "
            f"{experiment.benchmark.repeats:,}); at most {MAX_LAUNCHES:,} fit one run",
            hint="lower benchmark.repeats, or split the experiment",
        )


def _axis_lengths(experiment: Experiment) -> dict[str, int]:
    """Number of values of each axis but the world sizes, by key: there is a training
    cell for each combination."""
    training, model = experiment.training, experiment.model
    return {
        "models": sum(_variants(choice) for choice in experiment.models),
        "batch_sizes": max(1, len(experiment.batch_sizes)),
        "training.precision": len(training.precision),
        "training.optimizer": len(training.optimizer),
        "training.fused": len(training.fused),
        "training.gradient_accumulation": len(training.gradient_accumulation),
        "training.activation_checkpointing": len(training.activation_checkpointing),
        "parallel.strategy": len(experiment.parallel.strategy),
        "model.channels_last": len(model.channels_last),
        "model.compile": len(model.compile),
        "data.source": len(experiment.data.source),
    }


def _variants(choice: ModelChoice | ScriptChoice) -> int:
    """Combinations of an entry's own axes."""
    if isinstance(choice, ModelChoice):
        return 1
    return math.prod(map(len, choice.axes.values()))


def _documented_peaks(devices: Sequence[DeviceInfo], indices: Sequence[int]) -> Mapping[str, float]:
    """The documented rates of the devices in use; empty unless all are the same one of the
    catalogue."""
    facts = [find_device(info.name) for info in devices if info.index in indices]
    first = facts[0] if facts else None
    if first is not None and all(fact == first for fact in facts):
        return first.peak_flops
    return {}


def _expand(experiment: Experiment, device: DeviceKind, counts: tuple[int, ...]) -> list[AnyCell]:
    """The cells of every kind that is measured, in the order of the table of kinds."""
    return [
        cell
        for kind in KINDS
        if kind in experiment.measure
        for cell in plan_kind(kind).make_cells(experiment, device, counts)
    ]
