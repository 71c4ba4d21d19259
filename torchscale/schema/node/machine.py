"""What a plan may use: devices and cores of the machine at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torchscale.schema.node.environment import DeviceInfo, Environment


@dataclass(frozen=True)
class Machine:
    """The machine of a sweep.

    Attributes:
        environment: Environment as a worker process sees it.
        cores: One logical CPU per usable physical core, in the order in which ranks get them.
        node_cores: Usable logical CPUs of each NUMA node.
    """

    environment: Environment
    cores: tuple[int, ...]
    node_cores: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def cores_beside(self, devices: Iterable[DeviceInfo]) -> dict[int, tuple[int, ...]]:
        """Usable cores of each device's NUMA node, by the device's index; without those whose node
        is not known, and empty on a machine of a single node."""
        if len(self.node_cores) < 2:
            return {}
        return {
            info.index: self.node_cores[info.numa_node]
            for info in devices
            if info.numa_node is not None and self.node_cores.get(info.numa_node)
        }
