"""How evenly the experts of a cell's model are used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.signals import HotExpert
from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.schema.launch.experts import ExpertUse
from torchscale.schema.launch.training import TrainingResult


@dataclass(frozen=True)
class ExpertFigures:
    """Of the first launch; shares are over an even one, so that 1 is even.

    Attributes:
        experts: Routed experts of a layer.
        chosen: Experts that a token goes to.
        layers: Expert layers.
        degree: Devices over which the experts of a layer are spread.
        parameters: Of the whole model.
        active_parameters: What a token is computed with; ``None`` where it is not known.
        hottest: The expert with most tokens of any layer.
        mean_peak: Share of a layer's expert with most, mean over layers.
        rank_shares: Share of the tokens that each rank's experts compute; empty where experts are
            not spread.
        step_share: What experts take of a step, mean over ranks.
    """

    experts: int
    chosen: int
    layers: int
    degree: int
    parameters: int | None
    active_parameters: int | None
    hottest: HotExpert
    mean_peak: float
    rank_shares: tuple[float, ...]
    step_share: float | None

    @property
    def peak(self) -> float:
        """Share of the expert with most tokens."""
        return self.hottest.share

    @property
    def rank_peak(self) -> float | None:
        """Share of the rank with most tokens; ``None`` where experts are not spread."""
        return max(self.rank_shares, default=None)


def expert_figures(result: TrainingResult) -> ExpertFigures | None:
    """``None`` for a model without experts, and where no token went to any."""
    use = next((rank.experts for rank in result.ranks if rank.experts is not None), None)
    if use is None or not any(map(any, use.tokens)):
        return None
    tokens = np.array(use.tokens, dtype=np.float64)
    shares = tokens / np.maximum(tokens.mean(axis=1, keepdims=True), 1e-12)
    row, column = divmod(int(shares.argmax()), use.experts)
    first = result.ranks[0]
    return ExpertFigures(
        experts=use.experts,
        chosen=use.chosen,
        layers=use.layer_count,
        degree=use.degree,
        parameters=first.parameters,
        active_parameters=first.active_parameters,
        hottest=HotExpert(use.layers[row], column, float(shares[row, column])),
        mean_peak=float(shares.max(axis=1).mean()),
        rank_shares=_rank_shares(result, use),
        step_share=_step_share(result),
    )


def _rank_shares(result: TrainingResult, use: ExpertUse) -> tuple[float, ...]:
    signals = result.signals
    if use.degree == 1 or signals is None or signals.expert_tokens is None:
        return ()
    means = np.array([np.mean(row) for row in signals.expert_tokens])
    return tuple(float(share) for share in means / max(float(means.mean()), 1e-12))


def _step_share(result: TrainingResult) -> float | None:
    if result.signals is None or result.signals.expert_seconds is None:
        return None
    seconds = float(np.mean([np.mean(row) for row in result.signals.expert_seconds]))
    return seconds / mean_step_seconds(result)
