"""Which devices a smaller count takes, and which cores their ranks run on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.schema.config import Placement
from torchscale.schema.environment import DeviceInfo


def ordered(indices: Sequence[int], devices: Sequence[DeviceInfo], placement: Placement) -> tuple[int, ...]:
    """Devices in the order in which ranks take them: one NUMA node after the other, or nodes in turn. In their own
    order
    where a device's node is not known."""
    nodes = {info.index: info.numa_node for info in devices}
    if any(nodes.get(index) is None for index in indices):
        return tuple(indices)
    by_node: dict[int, list[int]] = {}
    for index in indices:
        by_node.setdefault(nodes[index] or 0, []).append(index)
    if placement == "packed":
        return tuple(index for members in by_node.values() for index in members)
    longest = max((len(members) for members in by_node.values()), default=0)
    return tuple(members[turn] for turn in range(longest) for members in by_node.values() if turn < len(members))


def bound_cores(cores: Mapping[int, tuple[int, ...]], devices: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """The cores beside each rank's device; ``None`` unless they are known for all."""
    found = tuple(cores.get(device, ()) for device in devices)
    return found if found and all(found) else None
