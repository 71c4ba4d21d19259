"""What the rules of the diagnosis share: limits, and a few lines of arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    Signals,
)
from torchscale.schema.profiles.finding import Confidence, Finding
from torchscale.util.units import format_percent, format_seconds

MIN_SAMPLES = 3
"""Samples for an interval of a rank's mean: with two, t has one degree of freedom and its interval
is 12.7 standard errors wide."""
COST_FLOOR = 0.02
"""A share of the step below which nothing is called a bottleneck (docs/diagnosis.md): the same 2 %
below which a comparison calls two runs equal."""

EXPLAINED_SHARE = 0.5
"""One thing explains another where it is more than half of it."""
CATCHES_UP = 16
"""Steps around a long one within which a host that runs ahead of its device makes up for it: the
launches that a device's queue takes, about a thousand, are a few steps of most models."""
COMPARED_WITH = 64
"""Steps before and after a long one whose mean is the pace there."""


def cannot_name(signals: Signals) -> str | None:
    """Why no rank may be blamed, or ``None``."""
    if signals.staged:
        return (
            "ranks communicate by sends and receives, as stages of a pipeline do: they hold "
            "different work"
        )
    if not signals.trusted:
        return "the recording is too short or its ranks cannot be compared with confidence"
    if max(signals.steps, signals.collectives or 0) < MIN_COMPARED:
        return f"fewer than {MIN_COMPARED} steps or collectives"
    return None


def explained_by_processes(signals: Signals, row: int, excess: float) -> str | None:
    """Why other processes on a rank's cores can be what it loses (seconds a step); ``None`` where
    they are not."""
    if signals.other_processes is None:
        return None
    others = float(np.median(np.delete(signals.other_processes, row)))
    share = max(0.0, float(signals.other_processes[row]) - others)
    if share * signals.step_seconds <= EXPLAINED_SHARE * excess:
        return None
    rank = signals.ranks[row]
    return (
        f"other processes took {format_percent(share, 0)} more of rank {rank}'s cores; that can "
        "make it slow"
    )


def comes_back(earlier: Sequence[Finding], rank: int | None, cost: float) -> bool:
    """Whether most of what a rank, or all, lose (seconds a step) is known to come back every so
    many steps."""
    return any(
        item.period_steps is not None
        and item.rank == rank
        and item.cost_seconds >= EXPLAINED_SHARE * cost
        for item in earlier
    )


def seconds_per_token(tokens: Matrix, seconds: Matrix) -> float:
    """What a further token takes at an expert: all time over all tokens of the rank on which that is
    least. A slow device takes longer, and so does a rank with few tokens, since experts also take
    time that does not depend on them. Rows are ranks; 0 where no rank has tokens."""
    counts, times = tokens.sum(axis=-1), seconds.sum(axis=-1)
    has_tokens = counts > 0
    if not has_tokens.any():
        return 0.0
    return float((times[has_tokens] / counts[has_tokens]).min())


def beyond_even_share(tokens: Matrix, seconds: Matrix) -> Matrix:
    """What each rank's experts take for the tokens that they have beyond an even share; negative for
    a rank with fewer. Rows are ranks, columns samples."""
    return np.asarray((tokens - tokens.mean(axis=0)) * seconds_per_token(tokens, seconds))


def per_step(seconds: float, signals: Signals) -> str:
    """``2.00 ms a step``; without the last words for a recording without steps."""
    if not signals.steps:
        return format_seconds(seconds)
    return f"{format_seconds(seconds)} a step"


def high_if(certain: bool, otherwise: Confidence) -> Confidence:
    """High confidence in what is certain."""
    if certain:
        return Confidence.HIGH
    return otherwise


def percent(seconds: float, signals: Signals) -> float:
    """A share of the step."""
    return seconds / signals.step_seconds * 100
