"""How the experts of a model are used, as it is published."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from torchscale.schema.exports.base import PUBLISHED


@dataclass(frozen=True, config=PUBLISHED)
class HotExpert:
    """The expert with most tokens."""

    layer: int
    """Expert layers are counted from 0."""
    expert: int
    share: float
    """Its tokens over an even share."""


@dataclass(frozen=True, config=PUBLISHED)
class ExpertFigures:
    """How evenly the experts of a model are used, in the first launch."""

    experts: int
    """Routed experts of a layer."""
    chosen: int
    """Experts that a token goes to."""
    layers: int
    """Expert layers."""
    degree: int
    """Devices over which the experts of a layer are spread."""
    parameters: int | None
    active_parameters: int | None
    """Parameters that a token is computed with."""
    hottest: HotExpert
    mean_peak: float
    """Tokens of a layer's expert with most over an even share, mean over layers."""
    rank_shares: tuple[float, ...]
    """Tokens at the experts of each rank over an even share; empty where they are not spread."""
    step_share: float | None
    """What experts take of a step, mean over ranks."""

    @property
    def peak(self) -> float:
        """Share of the expert with most tokens."""
        return self.hottest.share

    @property
    def rank_peak(self) -> float | None:
        """Share of the rank with most tokens; ``None`` where experts are not spread."""
        return max(self.rank_shares, default=None)
