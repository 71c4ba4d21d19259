"""The nodes of a launch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from torchscale.config.choices import MAX_NODES
from torchscale.schema.base import Frozen, Real

Name = Annotated[str, Field(max_length=255)]
"""Name of a host, an address, a file: as long as a file system or DNS allows."""
NodeRank = Annotated[int, Field(ge=0, lt=MAX_NODES)]
Number = Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]
Text = Annotated[str, Field(max_length=2000)]
"""A reason in words."""
Port = Annotated[int, Field(ge=1, le=65535, strict=True)]


class LaunchNode(Frozen):
    """A node of a launch: ranks ``first_rank`` to ``first_rank + ranks - 1`` ran there.

    Attributes:
        node_rank: Rank of the node in the sweep; the first has the run folder.
        hostname, address: Hostname and address of the node.
        first_rank, ranks: Which ranks.
        clock_offset_seconds: How far its clock is ahead of the first node's; ``None`` for that one.
    """

    node_rank: NodeRank
    hostname: Name
    address: Name
    first_rank: Number
    ranks: Number
    clock_offset_seconds: Real | None = None
