"""Orders the devices for smaller world sizes, and finds the cores of their ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.config.choices import Placement
from torchscale.schema.node.environment import DeviceInfo


def ordered(
    indices: Sequence[int], devices: Sequence[DeviceInfo], placement: Placement
) -> tuple[int, ...]:
    """Device indices in the order in which ranks take them: ``packed`` fills one NUMA node after
    the other, else nodes take turns. Unchanged where the node of any device is unknown."""
    nodes = {info.index: info.numa_node for info in devices}
    if any(nodes.get(index) is None for index in indices):
        return tuple(indices)
    by_node: dict[int, list[int]] = {}
    for index in indices:
        by_node.setdefault(nodes[index] or 0, []).append(index)
    if placement == "packed":
        return tuple(index for members in by_node.values() for index in members)
    longest = max((len(members) for members in by_node.values()), default=0)
    return tuple(
        members[turn]
        for turn in range(longest)
        for members in by_node.values()
        if turn < len(members)
    )


def bound_cores(
    cores: Mapping[int, tuple[int, ...]], devices: Sequence[int]
) -> tuple[tuple[int, ...], ...] | None:
    """The cores of the NUMA node of each rank's device; ``None`` unless they are known for all."""
    core_sets = tuple(cores.get(device, ()) for device in devices)
    if core_sets and all(core_sets):
        return core_sets
    return None
