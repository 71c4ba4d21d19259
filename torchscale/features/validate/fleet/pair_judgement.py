"""What the times of all pairs of nodes say of nodes and links."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.schema.node.fleet import PairwiseStatus

SLOW_SHARE = 0.10
"""A node or link is bad from this much more time on. Nodes and cables of one kind differ by a few
percent from place to place; a lane, a rail or a port that has failed costs at least a tenth."""
SUSPECT_ERROR = 0.05
"""As :data:`~torchscale.features.validate.fleet.pair_regression.FAMILY_ERROR`, for nodes and links
that are measured again: it costs a few seconds, and accuses nobody."""


@dataclass(frozen=True)
class Effect:
    """How much more time a node or link costs than the fleet's, as a share (0.3: 30 % more).

    Attributes:
        nodes: One for a node, two for a link.
        share: Estimated without this node's prior, or without this pair.
        low, high: 95 % interval for this node or link by itself.
        is_bad: Slower than :data:`SLOW_SHARE`, and with certainty after correction for all nodes
            and links.
        is_suspect: Slower than that, and less certain (:data:`SUSPECT_ERROR`): measure it again.
    """

    nodes: tuple[int, ...]
    share: float
    low: float
    high: float
    is_bad: bool = False
    is_suspect: bool = False


@dataclass(frozen=True)
class Judgement:
    """What the times of all pairs say.

    Attributes:
        status: The verdict.
        nodes, links: The slowest first; all but the links between two bad nodes.
        noise: Standard deviation of a pair's median, as a share.
        detectable_node, detectable_link: Smallest slowness that would have been found.
        ask_again: Pairs whose repetition can decide, or is needed before a node or link is blamed.
        reason: Why nothing can be told; empty where something can.
    """

    status: PairwiseStatus
    nodes: tuple[Effect, ...] = ()
    links: tuple[Effect, ...] = ()
    noise: float | None = None
    detectable_node: float | None = None
    detectable_link: float | None = None
    ask_again: tuple[Pair, ...] = ()
    reason: str = ""

    @property
    def bad_nodes(self) -> tuple[int, ...]:
        """Sorted."""
        return tuple(sorted(effect.nodes[0] for effect in self.nodes if effect.is_bad))

    @property
    def bad_links(self) -> tuple[Pair, ...]:
        """Sorted."""
        return tuple(
            sorted((effect.nodes[0], effect.nodes[1]) for effect in self.links if effect.is_bad)
        )
