"""What ``validate`` concludes over several nodes, and the times of pairs of nodes that it
measures."""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Interface
from typing import Annotated

from pydantic import Field, model_validator

from torchscale.config.choices import MAX_NODES
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    IntervalEnd,
    Name,
    NotNegative,
    Positive,
    Real,
)
from torchscale.schema.exports.base import PublishedDocument
from torchscale.schema.node.acceptance import Cause
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition, Validation

NodeRank = Annotated[int, Field(ge=0, lt=MAX_NODES)]


class NodeReport(Frozen):
    """What a node sends of its own checks. ``addresses``: of its interfaces, with their
    networks."""

    validation: Validation
    addresses: Annotated[tuple[IPv4Interface, ...], Field(max_length=1000)] = ()


class PairTask(Frozen):
    """What a node's process for pairs does.

    Attributes:
        place: Place of this node among those that take part, from 0; ``nodes`` of them.
        master_address, master_port: Address and port of the store, on place 0.
        partners: The other node's place in each round, ``None`` in a round without one.
        backend: ``nccl`` or ``gloo``.
        message_bytes: Size of an all-reduce, in fp32.
        repeats: All-reduces that are timed, after one that is not.
        timeout_seconds: Bound on each step of a pair.
        gpu: Local index of the GPU that takes part; of no meaning with gloo.
        address: Of this node in the network that is measured; the two nodes of a pair first try
            whether they reach each other there. Empty where nodes have one network, which they use
            already.
    """

    place: NodeRank
    nodes: Annotated[Count, Field(ge=1, le=MAX_NODES)]
    master_address: str
    master_port: Count
    partners: tuple[NodeRank | None, ...]
    backend: str
    message_bytes: Annotated[Count, Field(ge=4)]
    repeats: Annotated[Count, Field(ge=1)]
    timeout_seconds: Positive
    gpu: Annotated[Count, Field(ge=0)] = 0
    address: Name = ""


class PartnerTimes(Frozen):
    """Seconds of each all-reduce with one partner, the slower node's; empty with the reason in
    ``error``."""

    partner: NodeRank
    seconds: Annotated[tuple[Positive, ...], Field(max_length=1000)] = ()
    error: Annotated[str, Field(max_length=2000)] = ""


class PairTimes(Frozen):
    """Times that one node measured, with a partner in each round; the lower place of each pair
    reports them."""

    partners: Annotated[tuple[PartnerTimes, ...], Field(max_length=MAX_NODES)]


class PairwiseStatus(str, Enum):
    """What can be said of a fleet from the times of its pairs."""

    NONE = "none"
    BAD = "bad"
    UNCLEAR = "unclear"
    CANNOT_TELL = "cannot_tell"
    FAILED = "failed"


class MeasuredPair(Frozen):
    """The all-reduces of two nodes (by node rank): seconds of each, or why there are none."""

    nodes: tuple[NodeRank, NodeRank]
    seconds: tuple[Positive, ...] = ()
    error: str = ""


class Slowness(Frozen):
    """How much more time a node, or a link between two, costs than the fleet's, as a share (0.3: 30
    % more), with the 95 % interval. ``is_suspect``: slow, but not with certainty. ``action`` and
    ``disposition``: what to do with it; only of what is bad."""

    nodes: tuple[NodeRank, ...]
    share: Real
    low: IntervalEnd
    high: IntervalEnd
    is_bad: bool
    is_suspect: bool
    action: str = ""
    disposition: Disposition | None = None


class Pairwise(Frozen):
    """All pairs of nodes, and what their times say.

    Attributes:
        rail: Local index of the GPU that took part on each node; ``None`` over gloo.
        network: The network that was used; empty over NCCL, and where the nodes have one alone.
        backend, message_bytes: Backend and size of the all-reduce.
        status, verdict: What is bad, if anything.
        pairs: What was measured.
        nodes, links: The slowest first.
        noise: Standard deviation of a pair's median, as a share.
        detectable_node, detectable_link: The least slowness that would have been found, as a share.
    """

    backend: str
    message_bytes: Count
    rail: Count | None = None
    network: str = ""
    status: PairwiseStatus
    verdict: str
    pairs: tuple[MeasuredPair, ...]
    nodes: tuple[Slowness, ...] = ()
    links: tuple[Slowness, ...] = ()
    noise: Real | None = None
    detectable_node: Real | None = None
    detectable_link: Real | None = None

    @property
    def fit(self) -> bool:
        """Whether no node and no link is bad, as far as can be told."""
        return self.status not in (PairwiseStatus.BAD, PairwiseStatus.FAILED)


class SlowRail(Frozen):
    """A rail, which is the GPUs of one local index and their network cards, that is slow between
    all nodes: how much more time its pairs take than those of the other rails, as a share."""

    rail: Count
    share: Real


class FleetFigure(Frozen):
    """A figure of one node, or of a part of it, among those of all nodes.

    Attributes:
        node_rank: Which node.
        part: ``node`` or ``disk``: the middle of its parts, held against the other nodes; else a
            part, held against how the other parts of all nodes differ from the middle of theirs.
        rate, low, high: Geometric mean over its rounds, with the 95 % interval.
        deficit: How far it is below the reference, as a share.
        limit: The deficit from which on it is low.
        is_low: Whether it is, also after correction for all nodes, parts and figures.
        cause, because, action: As of a node's own figures; only of what is low.
        disposition: What to do with it; only of what is low.
    """

    node_rank: Count
    figure: str
    part: str
    unit: str
    rounds: Count
    rate: Positive
    low: IntervalEnd
    high: IntervalEnd
    deficit: Real
    limit: NotNegative
    is_low: bool = False
    cause: Cause | None = None
    because: str = ""
    action: str = ""
    disposition: Disposition | None = None


class FleetSpeeds(Frozen):
    """The speeds of all nodes together.

    Attributes:
        nodes: How many nodes have figures.
        figures: The slowest first, low ones before all others.
        left_out: Figures and nodes that are not compared, with the reason.
        copies: Pairs of nodes that sent one measurement, which one of them has not made.
        implausible: Nodes with figures far beyond those of all others, and which figures.
    """

    nodes: Count
    figures: tuple[FleetFigure, ...] = ()
    left_out: tuple[str, ...] = ()
    copies: tuple[tuple[NodeRank, NodeRank], ...] = ()
    implausible: dict[NodeRank, tuple[str, ...]] = Field(default_factory=dict)

    @property
    def low(self) -> tuple[FleetFigure, ...]:
        """Those that are low."""
        return tuple(figure for figure in self.figures if figure.is_low)


class FleetNode(Frozen):
    """A node of the fleet. ``validation`` is ``None`` where there is none, with the reason in
    ``error``. ``clock_offset_seconds``: how far its clock is ahead of node 0's; ``None`` for that
    one. ``disposition``: the graver of its own verdict and of what the others show."""

    node_rank: NodeRank
    hostname: Name
    address: Name
    clock_offset_seconds: Real | None = None
    lacks_required: bool = False
    validation: Validation | None = None
    error: str = ""
    disposition: Disposition = Disposition.UNDECIDED

    @property
    def fit(self) -> bool:
        """Whether all of its checks passed."""
        return self.validation is not None and self.validation.fit


class Difference(Frozen):
    """Something that is not the same on all nodes: its value on each, in the order of the fleet's
    nodes."""

    title: str
    values: tuple[str, ...]


class FleetValidation(Frozen):
    """The whole answer of ``validate --nnodes N --json``. ``fit`` is false when a node is absent or
    failed a check, or the collective failed, or a node, link or rail is bad.

    Attributes:
        disposition: The gravest verdict of all nodes and of what is slow among them.
        policy: What *keep* asked for; ``None`` where no acceptance was asked for.
        pairwise: All pairs of nodes, if they were asked for; over NCCL with GPU 0 of each.
        rails: The same with each further GPU of the nodes, in turn; over gloo, in each further
            network.
        slow_rails: Those that are slower than the others between all nodes.
        speeds: The speeds of all nodes together, if they were asked for.
        rails_left_out: Local indices of GPUs that were not measured: for want of time, or because
            pairs could not be measured before them.
        networks_left_out: Networks, likewise, and those in which no pair reaches each other.
    """

    schema_version: Count = SCHEMA_VERSION
    fit: bool
    disposition: Disposition = Disposition.UNDECIDED
    verdict: str
    policy: Policy | None = None
    nodes: tuple[FleetNode, ...]
    differences: tuple[Difference, ...] = ()
    collective: CollectiveFacts | None = None
    pairwise: Pairwise | None = None
    rails: tuple[Pairwise, ...] = ()
    slow_rails: tuple[SlowRail, ...] = ()
    rails_left_out: tuple[Count, ...] = ()
    networks_left_out: tuple[str, ...] = ()
    speeds: FleetSpeeds | None = None

    @model_validator(mode="after")
    def _is_of_these_nodes(self) -> FleetValidation:
        ranks = {node.node_rank for node in self.nodes}
        named = {each.node_rank for each in self.speeds.figures} if self.speeds else set()
        for pairwise in (*self.rails, *([self.pairwise] if self.pairwise else [])):
            for slowness in (*pairwise.nodes, *pairwise.links):
                named.update(slowness.nodes)
        if not named <= ranks:
            raise ValueError(f"nodes {sorted(named - ranks)} are not among the nodes")
        if any(len(each.values) != len(self.nodes) for each in self.differences):
            raise ValueError("a difference does not have a value for each node")
        return self


DOCUMENT = PublishedDocument(
    FleetValidation,
    SCHEMA_VERSION,
    "torchscale validation of several nodes",
    "The checks of all nodes, and what is slow: `torchscale validate --nnodes N --json`.",
)
