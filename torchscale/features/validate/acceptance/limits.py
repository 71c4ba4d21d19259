"""What the figures of an acceptance are held against: documented rates, an earlier acceptance, the
parts of the same node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.estimate import Estimate, from_log
from torchscale.analysis.stats.ratios import log_ratio, ratio_to_median
from torchscale.analysis.stats.series import student_t_quantile
from torchscale.catalog.devices import find_device
from torchscale.features.validate.acceptance.estimates import log_level, slowest
from torchscale.features.validate.acceptance.peers import FAMILY_ERROR, peer_limit
from torchscale.schema.node.acceptance import Baseline, Limit, LimitKind, Series
from torchscale.schema.node.policy import MIN_ROUNDS
from torchscale.util.units import format_percent

COMPUTE_SHARE = 0.40
"""Share of the documented dense rate that products of matrices reach on a sound device at the least.
Published measurements lie between 0.45 (cards whose power limit is far below what their tensor cores
could draw, such as T4 and L4, and MI300X in bf16) and 0.9: a documented rate tells a broken device
from a sound one, and no more."""
MEMORY_SHARE = 0.70
"""The same of memory: copies within a device reach 0.8 to 0.93 of the documented bandwidth."""
DISK_LOSS = 0.20
"""Loss of a disk against its baseline that is accepted at the least. An idle disk that others share
had levels 10 % apart, and a baseline may be from the upper one: twice that."""
SUSPECT_ERROR = 0.05
"""Probability that an acceptance of sound parts has one measured for longer: that costs minutes, and
accuses nobody."""
COMPUTE, MEMORY = "compute ", "memory bandwidth"
"""How figures of products begin, and the figure of copies within a device."""
DISK = "disk "
"""How figures of the disk begin."""
NODE = "node"
"""The part of figures that are of no single device or link."""

REFERENCES = {
    LimitKind.DOCUMENTED: "documented rate",
    LimitKind.BASELINE: "baseline",
    LimitKind.PEERS: "median of its peers",
}
"""What a deficit is below."""


@dataclass(frozen=True)
class Held:
    """A figure against one limit.

    Attributes:
        surely_low: Below it, also after correction for all figures.
        surely_within: Its 95 % interval lies above it.
        seems_low: Its rate is below the limit, and not as high as the reference by chance
            (:data:`SUSPECT_ERROR`).
    """

    limit: Limit
    deficit: float
    surely_low: bool
    surely_within: bool
    seems_low: bool


def documented(series: Series) -> tuple[float, float, str] | None:
    """The documented rate of a figure, the share of it that is asked for, and the source; ``None``
    where there is none."""
    device = find_device(series.device)
    if device is None:
        return None
    if series.figure == MEMORY:
        return device.memory_bytes_per_second, MEMORY_SHARE, device.source
    peak = device.peak_flops.get(series.figure.removeprefix(COMPUTE))
    if peak is None or not series.figure.startswith(COMPUTE):
        return None
    return peak, COMPUTE_SHARE, device.source


def earlier(series: Series, baseline: Baseline | None, world_size: int) -> list[Series]:
    """The baseline's series that this one is held against: of the same device where it has that, else
    of all of its parts in the same figure. What all ranks do together compares where they were as
    many."""
    together = series.part == NODE and not series.figure.startswith(DISK)
    if baseline is None or (together and baseline.run.world_size != world_size):
        return []
    alike = [
        other
        for other in baseline.run.series
        if (other.figure, other.unit, other.device) == (series.figure, series.unit, series.device)
        and len(_known(other.values)) >= MIN_ROUNDS
        and len(other.uuids) == len(series.uuids)
    ]
    own = [other for other in alike if series.uuids and other.uuids == series.uuids]
    return own or alike


def held_against(
    series: Series,
    values: Sequence[float],
    baseline: Baseline | None,
    *,
    tests: int,
    world_size: int,
    loss: float,
    share: float = 1.0,
) -> Iterator[Held]:
    """A figure against its documented rate and its baseline, as far as there are such.

    Args:
        series: The figure.
        values: Of its undisturbed rounds, at least :data:`MIN_ROUNDS`.
        baseline: An earlier acceptance.
        tests: How many figures are judged together.
        world_size: Ranks of each launch.
        loss: Loss against the baseline that is accepted; of a disk at least :data:`DISK_LOSS`.
        share: Which part of the baseline's rounds they are held against: its slowest.
    """
    level = log_level(values)
    fact = documented(series)
    if fact is not None:
        reference, asked, source = fact
        basis = f"{format_percent(asked, 0)} of the documented rate ({source})"
        limit = Limit(
            kind=LimitKind.DOCUMENTED, rate=reference * asked, reference=reference, basis=basis
        )
        yield _held(limit, level.value - math.log(reference), level.error, level.count - 1, tests)
    others = earlier(series, baseline, world_size)
    if others and baseline is not None:
        groups = [slowest(_known(other.values), share) for other in others]
        ratio = log_ratio(values, groups[0])
        if len(groups) > 1:
            ratio = ratio_to_median(values, groups)
        reference = math.exp(level.value - ratio.log)
        if series.figure.startswith(DISK):
            loss = max(loss, DISK_LOSS)
        limit = Limit(
            kind=LimitKind.BASELINE,
            rate=reference * (1 - loss),
            reference=reference,
            basis=f"baseline {baseline.source} less {format_percent(loss, 0)}",
        )
        yield _held(limit, ratio.log, ratio.error, ratio.degrees, tests)


def _held(
    limit: Limit, ratio: float, error: float | None, degrees: float | None, tests: int
) -> Held:
    """``ratio``: logarithm of the rate over the limit's reference."""
    at = math.log(limit.rate / limit.reference)
    low = within = seems = False
    if error is not None and degrees is not None:
        doubt = student_t_quantile(1 - SUSPECT_ERROR / tests, degrees) * error
        seems = ratio < at and ratio + doubt < 0
        low = ratio + student_t_quantile(1 - FAMILY_ERROR / tests, degrees) * error < at
        within = ratio - student_t_quantile(0.975, degrees) * error >= at
    return Held(limit, -math.expm1(ratio), low, within, seems)


def held_against_peers(
    series: Sequence[Series], levels: Mapping[int, Estimate], tests: int
) -> dict[int, Held]:
    """Parts against the others of the same figure, by place in ``series``; none where there are too
    few.

    Args:
        series: All figures of the node.
        levels: Logarithm of the level of each that has at least :data:`MIN_ROUNDS` rounds, by
            place.
        tests: How many figures are judged together.
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for place in levels:
        kinds.setdefault((series[place].figure, series[place].device), []).append(place)
    found: dict[int, Held] = {}
    for places in kinds.values():
        limit = peer_limit([levels[place].value for place in places], tests)
        if limit is None:
            continue
        text = Limit(
            kind=LimitKind.PEERS,
            rate=math.exp(limit.limit),
            reference=math.exp(limit.median),
            basis=f"{len(places)} parts of this node: median less "
            f"{format_percent(-math.expm1(limit.limit - limit.median))}",
        )
        for place in places:
            rate = levels[place].through(from_log)
            least, most = rate.bounds
            deficit = -math.expm1(levels[place].value - limit.median)
            # the interval of a part that is noisier than the others must be below the limit too
            low = places.index(place) in limit.low and most < text.rate
            found[place] = Held(text, deficit, low, least >= text.rate, rate.value < text.rate)
    return found


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
