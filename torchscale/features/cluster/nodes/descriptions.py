"""What a node says of itself when it joins: what must be equal on all nodes."""

from __future__ import annotations

from torchscale.config.choices import DeviceKind
from torchscale.schema.base import Frozen
from torchscale.schema.launch.nodes import Name, Number
from torchscale.schema.node.environment import Versions


class NodeDescription(Frozen):
    """What must be equal on all nodes of a sweep, and who says so.

    Attributes:
        hostname: Hostname of the machine.
        versions: Software.
        device: What the device request resolved to.
        device_names: Names of the devices in use, each name once.
        devices_per_node: Ranks of a launch on this node.
        threads_per_rank: CPU threads of every rank.
        plan_hash: Over the ids of all cells.
        config: Key → value as JSON, secrets redacted.
    """

    hostname: Name
    versions: Versions
    device: DeviceKind
    device_names: tuple[Name, ...] = ()
    devices_per_node: Number
    threads_per_rank: Number
    plan_hash: Name
    config: dict[str, str]


class CheckDescription(Frozen):
    """Description of a node for ``validate``, where nodes may differ: what differs is its result.
    Only the command must be equal.

    Attributes:
        hostname: Hostname of the machine.
        settings: Option → value, of those that all nodes must share.
    """

    hostname: Name
    settings: dict[Name, Name]


Description = NodeDescription | CheckDescription
"""Which command a node runs, and with what."""
