"""Devices, world sizes and threads of a plan: what the experiment asks for, on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.errors import MachineError
from torchscale.schema.node.machine import Machine


def cpu_threads_per_rank(experiment: Experiment, cores: tuple[int, ...]) -> int:
    """CPU threads of every rank of the plan on these cores, if it is one of CPU ranks.

    Raises:
        MachineError: the experiment asks for cores or threads that are not there.
    """
    indices = chosen_devices(experiment, "cpu", cores)
    per_node = devices_per_node_of(experiment, "cpu", len(indices))
    counts = world_sizes(experiment, per_node or len(indices))
    return threads_per_rank_of(experiment, "cpu", local_counts(counts, per_node), indices, cores)


def local_counts(counts: tuple[int, ...], per_node: int | None) -> tuple[int, ...]:
    """Ranks on one node of each world size."""
    if per_node is None:
        return counts
    return tuple(min(count, per_node) for count in counts)


def resolve_device(experiment: Experiment, machine: Machine) -> DeviceKind:
    """The kind of device that the experiment asks for.

    Raises:
        MachineError: this machine has none.
    """
    requested, environment = experiment.device, machine.environment
    if requested == "cpu":
        return "cpu"
    if requested in ("mps", "xpu"):
        if any(info.kind == requested for info in environment.devices):
            return requested
        raise MachineError(
            f"device: {requested}, but PyTorch finds no such device on this machine",
            hint="set device: auto or cpu",
        )
    if environment.cuda_available:
        return "cuda"
    if requested == "cuda":
        raise MachineError(
            "device: cuda, but PyTorch finds no CUDA device on this machine",
            hint="run `torchscale validate --require cuda` to see why; to plan for another "
            "machine, add --dry-run --hardware 8xh100",
        )
    return "cpu"


def available_devices(device: DeviceKind, machine: Machine) -> tuple[int, ...]:
    """Indices of the machine's devices of this kind, or its cores."""
    if device == "cpu":
        return machine.cores
    return tuple(info.index for info in machine.environment.devices if info.kind == device)


def chosen_devices(
    experiment: Experiment, device: DeviceKind, available: tuple[int, ...]
) -> tuple[int, ...]:
    """Those of the ``available`` ones that the experiment uses.

    Raises:
        MachineError: it names one that is not there.
    """
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


def devices_per_node_of(experiment: Experiment, device: DeviceKind, devices: int) -> int | None:
    """Ranks on each node of a world size that needs several; ``None`` where the experiment has no
    such world size.

    Raises:
        MachineError: this node has fewer devices than each node of the sweep is to have.
    """
    settings = experiment.launch
    if settings.nodes == 1 and settings.devices_per_node is None and experiment.nodes is None:
        return None
    threads = settings.threads_per_rank if device == "cpu" else None
    here = max(1, devices // (threads or 1))
    asked = settings.devices_per_node
    if asked is not None and asked > here and not settings.oversubscribe:
        raise MachineError(
            f"launch.devices_per_node: {asked} exceeds the {here} that this node has",
            hint="lower it, or leave this node out",
        )
    return asked or here


def refuse_split_nodes(counts: Sequence[int], nodes: int, per_node: int | None) -> None:
    """Refuse world sizes that are no whole number of nodes.

    Raises:
        MachineError: a count takes a part of a node besides whole ones.
    """
    for count in counts:
        if (
            nodes > 1
            and per_node is not None
            and per_node < count < nodes * per_node
            and count % per_node
        ):
            whole = count // per_node
            raise MachineError(
                f"gpu_counts: {count} is no whole number of nodes of {per_node} devices",
                hint=f"use {whole * per_node} or {(whole + 1) * per_node}, or set "
                "launch.devices_per_node",
            )


def world_sizes(experiment: Experiment, devices: int) -> tuple[int, ...]:
    """The world sizes of the experiment's cells; ``devices``: of a node."""
    if experiment.nodes is not None:
        return tuple(count * devices for count in experiment.nodes)
    if experiment.gpu_counts != "auto":
        return tuple(experiment.gpu_counts)
    on_one_node = _powers_up_to(devices)
    return (
        *on_one_node,
        *(count * devices for count in _powers_up_to(experiment.launch.nodes)[1:]),
    )


def _powers_up_to(largest: int) -> tuple[int, ...]:
    """1, 2, 4, … and ``largest``."""
    powers = tuple(
        1 << exponent for exponent in range(largest.bit_length()) if 1 << exponent <= largest
    )
    if powers[-1] == largest:
        return powers
    return (*powers, largest)


def threads_per_rank_of(
    experiment: Experiment,
    device: DeviceKind,
    counts: tuple[int, ...],
    indices: tuple[int, ...],
    all_cores: tuple[int, ...],
) -> int:
    """CPU threads of each rank: cores ÷ the largest world size that fits; where none fits, and ranks
    share cores anyway, ÷ the largest. Equal for all world sizes of a plan, so that scaling
    efficiency compares ranks of equal size."""
    if experiment.launch.threads_per_rank is not None:
        threads = experiment.launch.threads_per_rank
        if device == "cpu" and threads > len(indices):
            raise MachineError(
                f"launch.threads_per_rank: {threads} exceeds the {len(indices)} usable cores",
                hint="lower it or remove it",
            )
        return threads
    cores = indices if device == "cpu" else all_cores
    fitting = [count for count in counts if count <= len(indices)]
    return max(1, len(cores) // max(fitting or counts))
