"""Where the cells of a plan would run, and whether there are devices enough for one."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.config.choices import DeviceKind
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.node.environment import DeviceInfo


@dataclass(frozen=True)
class ExecutionTarget:
    """Where the cells of a plan would run.

    Attributes:
        device: What the device request resolved to.
        indices: Usable devices in the order in which ranks take them: GPU indices, or cores on CPU.
        threads: CPU threads of every rank.
        devices: What is known of the machine's devices.
        oversubscribe: Whether ranks may share devices.
        torch: Version.
        fixed_threads: Whether the config sets ``threads``; else they are the cores, shared out over
            the largest count that fits.
        nodes: Number of nodes of the sweep, each like this one.
        devices_per_node: Ranks on each node of a cell that needs several; ``None`` on a single node
            without such a limit.
        torchao: Version; ``None`` where it is not installed.
    """

    device: DeviceKind
    indices: tuple[int, ...]
    threads: int
    devices: tuple[DeviceInfo, ...]
    oversubscribe: bool
    torch: str
    fixed_threads: bool = False
    nodes: int = 1
    devices_per_node: int | None = None
    torchao: str | None = None

    @property
    def capacity(self) -> int:
        """Ranks of a node that have a device, or enough cores, of their own."""
        if self.device == "cpu":
            return len(self.indices) // self.threads
        return len(self.indices)


def machine_obstacle(cell: AnyCell, target: ExecutionTarget) -> str | None:
    """What keeps a cell that measures the machine itself from running; ``None`` if nothing does."""
    if reason := too_few_devices(cell, target):
        return reason
    if target.device == "mps" and cell.world_size > 1:
        return "mps has a single device; use world size 1"
    return None


def too_few_devices(cell: AnyCell, target: ExecutionTarget) -> str | None:
    """How many devices are missing; ``None`` where there are enough, or ranks may share them."""
    capacity, threads = target.capacity, target.threads
    if target.devices_per_node is not None:
        return _too_few_nodes(cell, target.nodes, target.devices_per_node)
    if cell.world_size <= capacity or (target.oversubscribe and capacity > 0):
        return None
    have = f"{capacity} GPU{'s' * (capacity != 1)}"
    if target.device == "cpu":
        ranks, each = len(target.indices), 1
        if target.fixed_threads:
            ranks, each = capacity, threads
        have = f"{ranks} CPU rank{'s' * (ranks != 1)} of {each} core{'s' * (each != 1)}"
    return (
        f"needs {cell.world_size} devices; there {'is' if have.startswith('1 ') else 'are'} {have}"
    )


def _too_few_nodes(cell: AnyCell, nodes: int, per_node: int) -> str | None:
    if cell.world_size <= nodes * per_node:
        return None
    needed = -(-cell.world_size // per_node)
    each = f"{per_node} device{'s' * (per_node != 1)}"
    return f"needs {needed} node{'s' * (needed != 1)} of {each}; the sweep has {nodes}"
