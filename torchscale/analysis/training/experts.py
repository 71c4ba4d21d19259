"""How evenly the experts of a cell's model are used."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.schema.exports.experts import ExpertFigures, HotExpert
from torchscale.schema.launch.experts import ExpertUse
from torchscale.schema.launch.training import TrainingResult


def expert_figures(result: TrainingResult) -> ExpertFigures | None:
    """``None`` for a model without experts, and where no token went to any."""
    use = next((rank.experts for rank in result.ranks if rank.experts is not None), None)
    if use is None or not any(map(any, use.tokens_per_expert)):
        return None
    tokens = np.array(use.tokens_per_expert, dtype=np.float64)
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
    if use.degree == 1 or signals is None or signals.expert_tokens_per_rank is None:
        return ()
    means = np.array([np.mean(row) for row in signals.expert_tokens_per_rank])
    return tuple(float(share) for share in means / max(float(means.mean()), 1e-12))


def _step_share(result: TrainingResult) -> float | None:
    if result.signals is None or result.signals.expert_seconds is None:
        return None
    seconds = float(np.mean([np.mean(row) for row in result.signals.expert_seconds]))
    return seconds / mean_step_seconds(result)
