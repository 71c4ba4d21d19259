"""A node that takes part, as the first node knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchscale.features.cluster.nodes.agent_messages import PortFound
from torchscale.features.cluster.nodes.channel import Channel
from torchscale.features.cluster.nodes.descriptions import Description


@dataclass
class Member:
    """A node that takes part, or did."""

    node_rank: int
    description: Description
    address: str
    port: int | None
    channel: Channel
    clock_offset_seconds: float = 0.0
    lost: str = ""
    unreached: Mapping[int, str] | None = None
    port_found: PortFound | None = None

    @property
    def label(self) -> str:
        """``node 1 (n2)``."""
        return f"node {self.node_rank} ({self.description.hostname})"
