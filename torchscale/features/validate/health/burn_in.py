"""Rounds of a burn-in → rates, their trends, wrong results, and checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import (
    RuleOutcome,
    failed,
    gpus_of,
    not_applicable,
    passed,
    warned,
)
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.burn_in import BurnIn, BurnInRound, PartRate, WrongResult
from torchscale.schema.node.check import Check
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.probe import GpuFacts, NodeFacts
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_change, format_percent, format_seconds

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
MAX_LOSS = 0.05
"""A GPU that warms up loses 1 to 3 % of its clock; more comes from cooling, power or another
load."""
MAX_THROTTLED_SHARE = 0.05
"""A single reading may show a short reason; a twentieth of the time is a condition."""


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


def burn_in_checks(burn_in: BurnIn, facts: NodeFacts) -> list[Check]:
    """Whether every result was exact, rates held, and GPUs kept their clocks and had no memory
    errors."""
    return [
        _results(burn_in, facts).check("burn_in_results", "burn-in", "results"),
        _throughput(burn_in, facts).check("burn_in_throughput", "burn-in", "throughput over time"),
        _gpus(burn_in, facts).check("burn_in_gpus", "burn-in", "GPUs meanwhile"),
    ]


def _results(burn_in: BurnIn, facts: NodeFacts) -> RuleOutcome:
    ran = (
        f"{burn_in.rounds:,} rounds on {burn_in.world_size} ranks in "
        f"{format_seconds(burn_in.seconds)}"
    )
    if burn_in.product_share is not None:
        ran += f", {format_percent(burn_in.product_share, 0)} of it in products"
    if burn_in.wrong:
        first = burn_in.wrong[0]
        where = ""
        if first.first is not None:
            value = first.first
            where = (
                f", first at offset {value.offset_bytes} (address {value.address:#x}): {value.seen}"
            )
            where += f" instead of {value.expected}"
        seen = (
            f"{burn_in.wrong_results:,} wrong parts, the first: {first.part} on rank {first.rank} "
            f"({first.device}), "
        )
        seen += f"round {first.round}, {first.wrong:,} elements{where}; {ran}"
        advice = "do not train on this device; check its memory (ECC), and test the host's memory"
        return failed(seen, "every bit right", advice, fixes.wrong_sums(gpus_of(facts)))
    if burn_in.error is not None:
        advice = "see the error; run it for a shorter time or with fewer devices to find which"
        return failed(f"{burn_in.error}; {ran}", "a run to its end", advice, fixes.DRIVER_BROKEN)
    if burn_in.rounds == 0:
        return not_applicable("ended before the first round")
    if burn_in.interrupted:
        return passed(f"every bit right; {ran}, interrupted")
    return passed(f"every bit right; {ran}")


def _throughput(burn_in: BurnIn, facts: NodeFacts) -> RuleOutcome:
    known = [(rate, rate.change) for rate in burn_in.rates if rate.change is not None]
    if not known:
        return not_applicable(f"a trend needs at least {MIN_BLOCKS} rounds")
    slower = [
        rate
        for rate, change in known
        if change < -MAX_LOSS and rate.change_high is not None and rate.change_high < 0
    ]
    if slower:
        seen = "; ".join(_trend_text(rate) for rate in slower[:8])
        commands = fixes.gpu_commands(gpus_of(facts), *fixes.PERFORMANCE) or fixes.CPU_LOAD
        advice = "check cooling, power and other processes: the rate does not hold"
        return warned(seen, f"a loss of at most {format_percent(MAX_LOSS, 0)}", advice, commands)
    return passed(f"largest loss: {_trend_text(min(known, key=lambda it: it[1])[0])}")


def _gpus(burn_in: BurnIn, facts: NodeFacts) -> RuleOutcome:
    if not burn_in.gpus:
        return not_applicable("no GPU that the driver reports on")
    gpus = gpus_of(facts)
    faulty = [use for use in burn_in.gpus if use.new_ecc_errors]
    if faulty:
        seen = ", ".join(
            f"{use.uuid}: {use.new_ecc_errors} new uncorrected errors" for use in faulty
        )
        advice = "drain the node; reset or replace the GPU"
        return failed(seen, "none", advice, fixes.gpu_commands(gpus, *fixes.ECC_RESET))
    slow = [use for use in burn_in.gpus if (use.throttled_share or 0) > MAX_THROTTLED_SHARE]
    if slow:
        seen = "; ".join(
            f"{use.uuid}: {', '.join(use.throttle_reasons or ())} for "
            f"{format_percent(use.throttled_share or 0, 0)} of the time"
            for use in slow
        )
        return warned(
            seen,
            "none",
            "check cooling and power",
            fixes.gpu_commands(gpus, *fixes.PERFORMANCE),
        )
    peaks = [
        use.temperature_peak_celsius
        for use in burn_in.gpus
        if use.temperature_peak_celsius is not None
    ]
    seen = "no new ECC errors, no throttling"
    if peaks:
        seen += f", at most {max(peaks):.0f} °C"
    return passed(seen + _power_text(burn_in.gpus, gpus))


def _power_text(uses: Sequence[GpuUse], gpus: Sequence[GpuFacts]) -> str:
    """Mean power of the GPU that drew the least of its limit; empty where NVML does not give
    both."""
    limits = {bare_uuid(gpu.uuid): gpu.power_limit_watts for gpu in gpus if gpu.uuid is not None}
    known = []
    for use in uses:
        limit = limits.get(bare_uuid(use.uuid))
        if use.power_watts is not None and limit:
            known.append((use.power_watts / limit, use.power_watts, limit))
    if not known:
        return ""
    share, watts, limit = min(known)
    least = f"{watts:.0f} of {limit:.0f} W"
    if len(known) == 1:
        return f", mean power {least} ({format_percent(share, 0)})"
    return f", mean power of each GPU at least {least} ({format_percent(share, 0)})"


def _trend_text(rate: PartRate) -> str:
    text = f"{rate.part} on rank {rate.rank} {format_change(rate.change or 0)}"
    if rate.change_low is None or rate.change_high is None:
        return text
    ends = format_ends(format_change(rate.change_low), format_change(rate.change_high))
    return f"{text} (95 % interval {ends})"


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
