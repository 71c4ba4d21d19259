"""Rounds of a burn-in → rates, their trends, and wrong results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.burn_in import BurnIn, BurnInRound, PartRate, WrongResult

_PRODUCT_UNIT = "FLOP"
"""Unit of the parts that multiply matrices; the others move bytes."""
MAX_POINTS = 512
"""Maximum number of points of a series: beyond it, neighbours are merged, so that a burn-in of days
takes no more memory than one of minutes."""
MAX_WRONG = 100
"""Wrong results that are listed; the others are counted."""
BLOCKS = 20
"""A trend is fitted to the rates of so many stretches: their means are nearly independent, single
rounds are not."""
MIN_BLOCKS = 6
"""With fewer, the interval of a slope is too wide to say anything (Student's t with less than 4
degrees of freedom)."""


@dataclass
class _Series:
    """Work of one part on one rank over time, as points (time, seconds, work)."""

    unit: str
    device: str
    rounds: int = 0
    per_point: int = 1
    points: list[tuple[float, float, float]] = field(default_factory=list)
    last: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, time: float, seconds: float, work: float) -> None:
        self.rounds += 1
        self.last.append((time, seconds, work))
        if len(self.last) == self.per_point:
            self.points.append(_merged(self.last))
            self.last = []
        if len(self.points) >= MAX_POINTS:
            self.points = [_merged(self.points[it : it + 2]) for it in range(0, MAX_POINTS, 2)]
            self.per_point *= 2


@dataclass
class BurnInTotals:
    """Adds up rounds as they come, in bounded memory."""

    series: dict[tuple[int, str], _Series] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0
    rank_seconds: float = 0.0
    product_seconds: float = 0.0
    wrong_results: int = 0
    wrong: list[WrongResult] = field(default_factory=list)

    def add(self, burn_round: BurnInRound) -> None:
        """One round of one rank."""
        self.rounds[burn_round.rank] = self.rounds.get(burn_round.rank, 0) + 1
        time = burn_round.time
        self.seconds = max(self.seconds, time + burn_round.seconds)
        self.rank_seconds += burn_round.seconds
        for part in burn_round.parts:
            name = (burn_round.rank, part.part)
            series = self.series.setdefault(name, _Series(part.unit, burn_round.device))
            series.add(time, part.seconds, part.work)
            time += part.seconds
            if part.unit == _PRODUCT_UNIT:
                self.product_seconds += part.seconds
            if not part.wrong:
                continue
            self.wrong_results += 1
            if len(self.wrong) < MAX_WRONG:
                self.wrong.append(
                    WrongResult(
                        rank=burn_round.rank,
                        device=burn_round.device,
                        round=burn_round.number,
                        part=part.part,
                        wrong=part.wrong,
                        first=part.first,
                    )
                )

    def result(
        self,
        backend: str,
        world_size: int,
        *,
        interrupted: bool = False,
        error: str | None = None,
        gpus: Sequence[GpuUse] = (),
    ) -> BurnIn:
        """All rounds so far."""
        product_share = None
        if self.rank_seconds:
            product_share = self.product_seconds / self.rank_seconds
        return BurnIn(
            backend=backend,
            world_size=world_size,
            seconds=self.seconds,
            rounds=min((self.rounds.get(rank, 0) for rank in range(world_size)), default=0),
            interrupted=interrupted,
            error=error,
            product_share=product_share,
            wrong_results=self.wrong_results,
            wrong=tuple(self.wrong),
            rates=tuple(
                _rate(rank, part, series) for (rank, part), series in sorted(self.series.items())
            ),
            gpus=tuple(gpus),
        )


def trend(points: Sequence[tuple[float, float, float]]) -> tuple[float, float, float] | None:
    """Relative change of work per second from the first to the last point, and its 95 % interval;
    ``None`` with fewer than :data:`MIN_BLOCKS` points. ``points``: time, seconds and work.

    Least squares of the logarithm of the rate over time (Student's t, as many degrees of freedom as
    blocks less two).
    """
    count = min(BLOCKS, len(points))
    if count < MIN_BLOCKS:
        return None
    bounds = [len(points) * it // count for it in range(count + 1)]
    blocks = [_merged(points[first:last]) for first, last in pairwise(bounds)]
    times = [block[0] for block in blocks]
    rates = [math.log(block[2] / block[1]) for block in blocks]
    middle, level = sum(times) / count, sum(rates) / count
    spread = sum((time - middle) ** 2 for time in times)
    if spread == 0:
        return None
    slope = (
        sum((time - middle) * (rate - level) for time, rate in zip(times, rates, strict=True))
        / spread
    )
    rest = sum(
        (rate - level - slope * (time - middle)) ** 2
        for time, rate in zip(times, rates, strict=True)
    )
    error = math.sqrt(rest / (count - 2) / spread)
    width = student_t_quantile(0.975, count - 2) * error
    length = points[-1][0] - points[0][0]
    low, high = (math.expm1((slope + sign * width) * length) for sign in (-1, 1))
    return math.expm1(slope * length), low, high


def _rate(rank: int, part: str, series: _Series) -> PartRate:
    points = list(series.points)
    if series.last:
        points.append(_merged(series.last))
    change, low, high = trend(points) or (None, None, None)
    seconds, work = sum(point[1] for point in points), sum(point[2] for point in points)
    return PartRate(
        rank=rank,
        device=series.device,
        part=part,
        unit=f"{series.unit}/s",
        rounds=series.rounds,
        rate=work / seconds,
        change=change,
        change_low=low,
        change_high=high,
    )


def _merged(points: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """One point for several: mean time, summed seconds and work."""
    return (
        sum(point[0] for point in points) / len(points),
        sum(point[1] for point in points),
        sum(point[2] for point in points),
    )
