"""What the agent that an engine starts on a node, and the process that leads, tell each other
before the agent joins, and beside its launches. All else is as between nodes of a channel
(``messages.py``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from torchscale.config.choices import MAX_NODES
from torchscale.schema.base import Count, Frozen, Seconds
from torchscale.schema.launch.nodes import Name, NodeRank, Number, Port, Text
from torchscale.schema.launch.progress import Progress

MAX_SETUP_BYTES = 64 << 20
"""A baseline of an acceptance is the largest part of a setup, and as large at most."""


class Hello(Frozen):
    """Agent → leader: the first message. ``version``: of torchscale there. ``niceness``: of the agent
    and its launches."""

    type: Literal["hello"] = "hello"
    hostname: Name
    version: Annotated[str, Field(max_length=100)]
    niceness: Annotated[int, Field(ge=-20, le=20, strict=True)] = 0


class AskMachine(Frozen):
    """Leader → agent: which devices and cores has this node?"""

    type: Literal["ask machine"] = "ask machine"


class MachineFound(Frozen):
    """Agent → leader, in answer to :class:`AskMachine`: the machine as JSON, or why it cannot be
    examined."""

    type: Literal["machine"] = "machine"
    content: str = ""
    problem: Text = ""


class AgentSetup(Frozen):
    """Leader → agent: what this node takes part in. Its ``size`` bytes follow as data frames.

    Attributes:
        role: A sweep or a check.
        node_rank, nodes: Which of how many nodes this is.
        address: This node's address as the engine knows it.
        peers: Addresses of other nodes: towards them leads the interface that launches use.
        silent_seconds: After so long without a sign of life the process that leads is gone.
        size: Bytes of the experiment or the options, as JSON.
    """

    type: Literal["setup"] = "setup"
    role: Literal["sweep", "check"]
    node_rank: NodeRank
    nodes: Annotated[Count, Field(ge=1, le=MAX_NODES)]
    address: Name
    peers: Annotated[tuple[Name, ...], Field(max_length=2)] = ()
    silent_seconds: Seconds
    size: Annotated[Count, Field(ge=1, le=MAX_SETUP_BYTES)]


class AskPort(Frozen):
    """Leader → agent: a free port on the address of this node."""

    type: Literal["ask port"] = "ask port"


class PortFound(Frozen):
    """Agent → leader, in answer to :class:`AskPort`; no port, but the problem, where there is
    none."""

    type: Literal["port"] = "port"
    port: Port | None = None
    problem: Text = ""


class Progressed(Frozen):
    """Agent → leader: what rank 0 says while it works."""

    type: Literal["progress"] = "progress"
    order: Number
    progress: Progress
