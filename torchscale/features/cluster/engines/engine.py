"""What a sweep needs of an engine: a program on each node, its standard input and output, and why
it ended. Everything else goes over these two, so that an engine needs no port of ours, no secret
and no shared directory, and what runs and judges launches knows no engine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["sweep", "check"]
"""What a node takes part in."""
AGENT = "torchscale.features.cluster.engines.agent"
"""The program's module."""


@dataclass(frozen=True)
class EngineNode:
    """A node of an engine: its name there, and its address as other nodes reach it."""

    name: str
    address: str


class NodeEngine(Protocol):
    """Starts agents on nodes. Every wait is bounded; what it started ends with :meth:`close`."""

    @property
    def name(self) -> str:
        """``slurm``, ``ray``."""

    @property
    def nodes(self) -> Sequence[EngineNode]:
        """The nodes of the sweep, in the order of their ranks."""

    def open(self, rank: int) -> socket.socket:
        """Start the agent of a node, in the place of an earlier one too. What is sent is its
        standard input, what is received its standard output.

        Raises:
            MachineError: it cannot be started.
        """

    def why_ended(self, rank: int) -> str:
        """What the engine says of the end of a node's agent, once its connection was closed; empty
        where it says nothing."""

    def close(self) -> None:
        """End all agents."""
