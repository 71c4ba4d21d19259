"""Noise from session to session, by one-way random effects on logarithms.

A launch's logarithm is level + effect of its session + noise of the launch. Variances come from the
analysis of variance with unequal group sizes (Searle, Casella and McCulloch 1992, chapter 3.6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchscale.analysis.stats.ratios import LogRatio

Groups = Sequence[Sequence[float]]
"""The values of a side, all positive, one sequence a session."""


@dataclass(frozen=True)
class SessionNoise:
    """How far the levels of sessions lie apart. ``variance`` is of their logarithm (of
    :func:`session_noise`); ``degrees`` are of freedom."""

    variance: float
    degrees: float

    @property
    def spread(self) -> float:
        """The standard deviation of a session's level, as a share of it."""
        return math.sqrt(self.variance)


def session_noise(sides: Iterable[Groups]) -> SessionNoise | None:
    """One estimate from all sides that have several sessions, and several launches in one of them;
    else ``None``.

    What exceeds the noise of launches within sessions counts; less than that gives a variance of 0.
    """
    return additive_session_noise(
        [[[math.log(value) for value in group] for group in groups] for groups in sides]
    )


def additive_session_noise(sides: Iterable[Groups]) -> SessionNoise | None:
    """:func:`session_noise` of values that may be 0 or below; its variance is theirs."""
    excess = weight = degrees = 0.0
    for groups in sides:
        sizes = [len(group) for group in groups]
        sessions, launches = len(sizes), sum(sizes)
        if not 1 < sessions < launches:
            continue
        between, within = _sums_of_squares(groups)
        excess += between - (sessions - 1) * within / (launches - sessions)
        weight += launches - sum(size**2 for size in sizes) / launches
        degrees += sessions - 1
    return SessionNoise(max(0.0, excess / weight), degrees) if weight else None


def with_session_noise(ratio: LogRatio, sides: Iterable[Groups], noise: SessionNoise) -> LogRatio:
    """``ratio`` of all launches of two sides, with the part of the noise between sessions that the
    variance of launches does not hold."""
    if ratio.error is None:
        return ratio
    variance = unseen_variance(sides, noise)
    return replace(ratio, session_error=math.sqrt(variance), session_degrees=noise.degrees)


def unseen_variance(sides: Iterable[Groups], noise: SessionNoise) -> float:
    """Variance of the difference of two sides' means that sessions add to what the variance of
    launches holds."""
    return noise.variance * sum(_unseen_share([len(group) for group in groups]) for groups in sides)


def _sums_of_squares(groups: Groups) -> tuple[float, float]:
    """Sums of squares between the groups, and within them."""
    grand = statistics.fmean(value for group in groups for value in group)
    means = [statistics.fmean(group) for group in groups]
    between = sum(
        len(group) * (mean - grand) ** 2 for group, mean in zip(groups, means, strict=True)
    )
    within = sum(
        (value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group
    )
    return between, within


def _unseen_share(sizes: Sequence[int]) -> float:
    """Variance of a side's mean per variance between sessions, less what the variance of its
    launches ÷ their number already holds of it: 1 in a single session, 0 where each launch is a
    session of its own."""
    launches = sum(sizes)
    concentration = sum((size / launches) ** 2 for size in sizes)
    return max(0.0, concentration - (1 - concentration) / (launches - 1))
