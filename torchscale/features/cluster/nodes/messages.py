"""What the nodes of a sweep tell each other: each message is one frame of JSON on the channel
between them.

Everything here comes from another machine: lengths and counts are bounded, and unknown fields are
errors.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from torchscale.config.choices import MAX_NODES
from torchscale.features.cluster.nodes.agent_messages import (
    AgentSetup,
    AskMachine,
    AskPort,
    Hello,
    MachineFound,
    PortFound,
    Progressed,
)
from torchscale.features.cluster.nodes.descriptions import Description
from torchscale.schema.base import Count, Frozen, Integer
from torchscale.schema.launch.nodes import Name, NodeRank, Number, Port, Text

ALIVE_SECONDS = 2.0
"""Seconds between two signs of life: many within ``launch.node_timeout_seconds``, and no load for
anybody."""

AnyTime = Annotated[float, Field(strict=True)]
"""Of a clock, however wrong it is: the first node names it."""
ExitStatus = Annotated[int, Field(gt=-(1 << 15), lt=1 << 15, strict=True)]
"""Exit status of a process: 0 to 255, or a signal's number below 0; wide enough for every
system."""


class Join(Frozen):
    """Node → first node: asks to take part. ``port`` is that of this node's listener for the check
    of pairs, and ``address`` the node's own, where no connection tells it: of agents of an
    engine, which listen nowhere."""

    type: Literal["join"] = "join"
    description: Description
    port: Port | None = None
    address: Name = ""


class Unable(Frozen):
    """Node → first node: it cannot take part, and why."""

    type: Literal["unable"] = "unable"
    reason: Text


class Alive(Frozen):
    """Either direction, every few seconds: nothing new."""

    type: Literal["alive"] = "alive"


class ClockReading(Frozen):
    """Node → first node: its clock, in answer to :class:`AskClock`; seconds since the epoch."""

    type: Literal["clock"] = "clock"
    time: AnyTime


class Reached(Frozen):
    """Node → first node: which peers it could not connect to, by node rank, each with the
    reason."""

    type: Literal["reached"] = "reached"
    failed: dict[NodeRank, Text]


class Ended(Frozen):
    """Node → first node: its part of a launch has ended; its files follow.

    Attributes:
        order: Number of the launch.
        exit_code: torchrun's; negative for a signal; ``None`` if it could not be started.
        problem: Why torchrun could not be started; else empty.
        survivors: Processes that could not be terminated.
        oom_kills: The kernel's out-of-memory kills during the launch.
    """

    type: Literal["ended"] = "ended"
    order: Number
    exit_code: ExitStatus | None
    problem: Text = ""
    survivors: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    oom_kills: Number = 0


class FileFollows(Frozen):
    """Node → first node: a file of the launch, of which ``size`` bytes follow as data frames."""

    type: Literal["file"] = "file"
    order: Number
    name: Name
    size: Count


class Collected(Frozen):
    """Node → first node: all files of the launch were sent."""

    type: Literal["collected"] = "collected"
    order: Number


class Inspected(Frozen):
    """Node → first node: it has asked its ranks of a launch where they are; what they said is among
    its files."""

    type: Literal["inspected"] = "inspected"
    order: Number


class Leaving(Frozen):
    """Node → first node: it ends now, and why."""

    type: Literal["leaving"] = "leaving"
    reason: Text


class Refused(Frozen):
    """First node → node: it may not take part, and why."""

    type: Literal["refused"] = "refused"
    reason: Text


class AskClock(Frozen):
    """First node → node: what time is it?"""

    type: Literal["ask clock"] = "ask clock"


class Peer(Frozen):
    """Where a node's listener for the check of pairs is."""

    node_rank: NodeRank
    address: Name
    port: Port


class Reach(Frozen):
    """First node → node: connect to each of these."""

    type: Literal["reach"] = "reach"
    peers: Annotated[tuple[Peer, ...], Field(max_length=MAX_NODES)]


class Start(Frozen):
    """First node → node: run your part of a launch.

    Attributes:
        order: Number of the launch.
        cell_id: A cell of the plan that both have.
        launch: Which repeat, from 0.
        node_rank: The node's place in this launch, from 0.
        nodes: Number of nodes of this launch.
        master_port: Port of torchrun's store, at the first node's address.
        master_address: That address; empty where it is the one that this node joined at.
        counts_flops: Whether operations are counted, as in the task of the first node.
    """

    type: Literal["start"] = "start"
    order: Number
    cell_id: Annotated[str, Field(max_length=1000)]
    launch: Number
    node_rank: NodeRank
    nodes: Annotated[Count, Field(ge=1, le=MAX_NODES)]
    master_port: Port
    master_address: Name = ""
    counts_flops: bool


class CheckStep(Frozen):
    """First node → node: run your part of a step of ``validate`` and send its result.

    Attributes:
        order: Number of the step, in the same sequence as launches.
        kind: The node's own checks, one collective over all nodes, or collectives of two nodes
            each.
        node_rank: The node's place in this step, from 0.
        nodes: Number of nodes of this step.
        backend: ``nccl`` or ``gloo``; empty for the node's own checks.
        ranks: Number of ranks on each node.
        master_port: Port of the ranks' store, at the first node's address; 1 where there is none.
        master_address: That address; empty where it is the one that this node joined at.
        partners: The other node's place in each round, for pairs; ``None`` in a round without one.
        repeats: Number of repeats of each pair.
        gpu: Local index of the GPU that takes part on this node, for pairs over NCCL.
        network: Whose interface takes part, for pairs over gloo; empty for the one towards the first
            node.
    """

    type: Literal["check"] = "check"
    order: Number
    kind: Literal["node", "collective", "pairs"]
    node_rank: NodeRank
    nodes: Annotated[Count, Field(ge=1, le=MAX_NODES)]
    backend: Literal["", "nccl", "gloo"] = ""
    ranks: Annotated[Count, Field(ge=1, le=1024)] = 1
    master_port: Port = 1
    master_address: Name = ""
    partners: Annotated[tuple[NodeRank | None, ...], Field(max_length=MAX_NODES)] = ()
    repeats: Annotated[Count, Field(ge=1, le=100)] = 1
    gpu: Annotated[Count, Field(ge=0, lt=1024)] = 0
    network: Name = ""


class Inspect(Frozen):
    """First node → node: a launch makes no progress; ask your ranks where they are, and do not end
    them."""

    type: Literal["inspect"] = "inspect"
    order: Number


class End(Frozen):
    """First node → node: end your part of a launch, if it still runs, and send its files."""

    type: Literal["end"] = "end"
    order: Number
    at_once: bool = False


class Farewell(Frozen):
    """First node → node: the sweep is over."""

    type: Literal["finish"] = "finish"
    exit_code: Annotated[Integer, Field(ge=0, le=255)]
    reason: Text = ""


ToLeader = Annotated[
    Join
    | Unable
    | Alive
    | ClockReading
    | Reached
    | Inspected
    | Ended
    | FileFollows
    | Collected
    | Leaving
    | Hello
    | MachineFound
    | PortFound
    | Progressed,
    Field(discriminator="type"),
]
"""What the first node reads."""
ToNode = Annotated[
    Refused
    | Alive
    | AskClock
    | Reach
    | Start
    | CheckStep
    | Inspect
    | End
    | Farewell
    | AskMachine
    | AskPort
    | AgentSetup,
    Field(discriminator="type"),
]
"""What the other nodes read."""
TO_LEADER: TypeAdapter[ToLeader] = TypeAdapter(ToLeader)
TO_NODE: TypeAdapter[ToNode] = TypeAdapter(ToNode)
