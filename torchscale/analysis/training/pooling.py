"""Several launches of a cell as one: each launch counts once, however many steps it measured.

A launch's times are scaled to the cell's step, which is the geometric mean over launches. Shares of
the step are then means of the launches' shares, and parts add up to the same step that throughput
and efficiency are derived from.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import (
    DeviceUse,
    ExpertLoad,
    FetchedMemory,
    LengthLoad,
    LinkProbe,
    Matrix,
    Pauses,
    Signals,
    SlowPeriod,
    Windows,
)
from torchscale.schema.launch.steps import RankSteps
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional


def pooled_share(
    results: Sequence[TrainingResult], seconds: Callable[[RankSteps], Sequence[float | None]]
) -> float | None:
    """A phase as a share of the step: per launch the sum over ranks ÷ the sum of the ranks' mean
    steps, then the mean over launches. ``None`` where a rank of any launch lacks it."""
    shares = []
    for result in results:
        values = seconds(result.rank_steps)
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        shares.append(sum(known) / sum(result.rank_steps.mean))
    return statistics.fmean(shares)


def pool_signals(launches: Sequence[Signals], step_seconds: float) -> Signals:
    """Signals of all launches of a cell, scaled to its step.

    What was not measured in every launch is ``None``. Where a launch gives one value and no series,
    the result has: for quantiles of exposed communication, those of the launch that varies in the
    median way; for probes of the link, that with the median time; for counts, the sum.

    Args:
        launches: Launches of the same ranks, at least one.
        step_seconds: The cell's mean step.
    """
    if len(launches) == 1:
        return launches[0]
    first = launches[0]
    scales = [step_seconds / launch.step_seconds for launch in launches]

    def series(values: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
        known = complete(values)
        if known is None:
            return None
        return np.concatenate(
            [value * scale for value, scale in zip(known, scales, strict=True)], axis=-1
        )

    pooled = Signals(
        origin=first.origin,
        ranks=first.ranks,
        step_seconds=step_seconds,
        steps=sum(launch.steps for launch in launches),
        weights=_weights(launches),
        compute=series([launch.compute for launch in launches]),
        unsynchronized=_unsynchronized(launches, scales),
        data_wait=series([launch.data_wait for launch in launches]),
        wait=series([launch.wait for launch in launches]),
        blame=_blame(launches),
        transfer=series([launch.transfer for launch in launches]),
        bucket_bytes=first.bucket_bytes,
        probe=_typical_probe([launch.probe for launch in launches]),
        link_bytes_per_second=_least([launch.link_bytes_per_second for launch in launches]),
        pauses=_pauses([launch.pauses for launch in launches], scales),
        windows=_windows([launch.windows for launch in launches], scales),
        periods=_periods([launch.periods for launch in launches], scales),
        other_processes=_mean([launch.other_processes for launch in launches]),
        throttled=_reasons([launch.throttled for launch in launches]),
        allocation_retries=_total([launch.allocation_retries for launch in launches]),
        page_faults=_most([launch.page_faults for launch in launches]),
        fetched_memory=_fetched_memory([launch.fetched_memory for launch in launches], scales),
        device_use=_device_use([launch.device_use for launch in launches]),
        on_device=first.on_device,
        split_sequences=first.split_sequences,
        staged=any(launch.staged for launch in launches),
        stages=first.stages,
        why_no_stages=first.why_no_stages,
        micro_batches=first.micro_batches,
        trusted=all(launch.trusted for launch in launches),
        experts=_experts([launch.experts for launch in launches], scales),
        lengths=_lengths([launch.lengths for launch in launches], scales),
    )
    if all(launch.hosts == first.hosts for launch in launches):
        pooled = replace(pooled, hosts=first.hosts)
    return _with_typical_variation(pooled, launches, scales)


def _most(values: Sequence[float | None]) -> float | None:
    """The largest that was measured."""
    return max((value for value in values if value is not None), default=None)


def _lengths(launches: Sequence[LengthLoad | None], scales: Sequence[float]) -> LengthLoad | None:
    """Means over launches."""
    known = complete(launches)
    if not known:
        return None
    waits = [one.wait_seconds * scale for one, scale in zip(known, scales, strict=True)]
    by_rank = zip(*(one.tokens for one in known), strict=True)
    return LengthLoad(statistics.fmean(waits), tuple(map(statistics.fmean, by_rank)))


def _weights(launches: Sequence[Signals]) -> NDArray[np.float64] | None:
    """Weight of each sample, such that the steps of a launch count equally and so do launches."""
    known = complete(launch.weights for launch in launches)
    if known is None:
        return None
    return np.concatenate([weights / weights.sum() for weights in known])


def _unsynchronized(
    launches: Sequence[Signals], scales: Sequence[float]
) -> tuple[NDArray[np.float64], ...] | None:
    """Samples without synchronization of each rank, those of all launches one after the other."""
    known = complete(launch.unsynchronized for launch in launches)
    if known is None:
        return None
    return tuple(
        np.concatenate(
            [by_rank[row] * scale for by_rank, scale in zip(known, scales, strict=True)], axis=-1
        )
        for row in range(len(launches[0].ranks))
    )


def _with_typical_variation(
    pooled: Signals, launches: Sequence[Signals], scales: Sequence[float]
) -> Signals:
    """Set the quantiles of exposed communication to those of the launch in which it varies in the
    median way."""
    variations = []
    for launch, scale in zip(launches, scales, strict=True):
        p50, p95 = launch.exposed_p50, launch.exposed_p95
        if p95 is None or not p50:
            return pooled
        variations.append((p95 / p50, p50 * scale, p95 * scale))
    middle = (len(variations) - 1) // 2
    _, p50, p95 = sorted(variations, key=itemgetter(0))[middle]
    return replace(pooled, exposed_p50=p50, exposed_p95=p95)


def _blame(launches: Sequence[Signals]) -> NDArray[np.float64] | None:
    """Shares of all waiting in all launches."""
    totals = []
    for launch in launches:
        if launch.blame is None or launch.wait is None:
            return None
        totals.append(launch.blame * float(launch.mean(launch.wait).sum()) / launch.step_seconds)
    total = np.sum(totals, axis=0)
    return np.asarray(total / max(float(total.sum()), 1e-12))


def _typical_probe(probes: Sequence[LinkProbe | None]) -> LinkProbe | None:
    known = complete(probes)
    if known is None:
        return None
    return sorted(known, key=lambda probe: probe.merged_seconds)[(len(known) - 1) // 2]


def _pauses(items: Sequence[Pauses | None], scales: Sequence[float]) -> Pauses | None:
    known = complete(items)
    if known is None:
        return None

    def mean(seconds: Sequence[float]) -> float:
        return statistics.fmean(value * scale for value, scale in zip(seconds, scales, strict=True))

    by_rank = complete(item.by_rank for item in known)
    pauses = Pauses(
        count=tuple(map(sum, zip(*(item.count for item in known), strict=True))),
        seconds_per_step=mean([item.seconds_per_step for item in known]),
        collection_seconds_per_step=optional(
            mean, complete(item.collection_seconds_per_step for item in known)
        ),
    )
    if by_rank is None:
        return pauses
    return replace(pauses, by_rank=tuple(map(mean, zip(*by_rank, strict=True))))


def _windows(items: Sequence[Windows | None], scales: Sequence[float]) -> Windows | None:
    """Windows of all launches, one after the other."""
    known = complete(items)
    if known is None:
        return None

    def joined(matrices: Sequence[Matrix]) -> Matrix:
        scaled = [matrix * scale for matrix, scale in zip(matrices, scales, strict=True)]
        return np.concatenate(scaled, axis=-1)

    return Windows(
        np.concatenate([item.steps for item in known]),
        joined([item.wall for item in known]),
        joined([item.compute for item in known]),
        optional(joined, complete(item.quiet for item in known)),
    )


def _periods(
    items: Sequence[tuple[SlowPeriod, ...]], scales: Sequence[float]
) -> tuple[SlowPeriod, ...]:
    """Of each rank, and of all together, the one that costs the median of those that launches
    have."""
    by_row: dict[int | None, list[SlowPeriod]] = {}
    for periods, scale in zip(items, scales, strict=True):
        for period in periods:
            scaled = replace(period, excess=period.excess * scale, cost=period.cost * scale)
            by_row.setdefault(period.row, []).append(scaled)
    return tuple(
        sorted(found, key=lambda item: item.cost)[(len(found) - 1) // 2]
        for found in by_row.values()
    )


def _experts(items: Sequence[ExpertLoad | None], scales: Sequence[float]) -> ExpertLoad | None:
    """Loads of all launches, one after the other; the experts that are named are the first one's,
    which has the same weights and samples as the others."""
    known = complete(items)
    if known is None:
        return None
    seconds = [item.seconds * scale for item, scale in zip(known, scales, strict=True)]
    return replace(
        known[0],
        tokens=np.concatenate([item.tokens for item in known], axis=-1),
        seconds=np.concatenate(seconds, axis=-1),
        uneven_tokens=np.mean([item.uneven_tokens for item in known], axis=0),
    )


def _fetched_memory(
    items: Sequence[FetchedMemory | None], scales: Sequence[float]
) -> FetchedMemory | None:
    """Fetched memory of the median launch: the heap ends otherwise in each, and what one of them
    lost is not the rule."""
    known = complete(items)
    if known is None:
        return None
    scaled = [
        replace(item, seconds_per_step=item.seconds_per_step * scale)
        for item, scale in zip(known, scales, strict=True)
    ]
    return sorted(scaled, key=lambda item: item.seconds_per_step)[(len(scaled) - 1) // 2]


def _device_use(items: Sequence[DeviceUse | None]) -> DeviceUse | None:
    """Means over launches, and all readings."""
    known = complete(items)
    if known is None:
        return None
    by_rank = zip(*(one.busy for one in known), strict=True)
    return DeviceUse(tuple(map(statistics.fmean, by_rank)), sum(one.readings for one in known))


def _mean(items: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    known = complete(items)
    if known is None:
        return None
    return np.asarray(np.mean(known, axis=0))


def _least(rates: Sequence[float | None]) -> float | None:
    return optional(min, complete(rates))


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    if not known:
        return None
    return sum(known)


def _reasons(
    items: Sequence[tuple[tuple[str, ...], ...] | None],
) -> tuple[tuple[str, ...], ...] | None:
    """Every reason that any launch gave, for each rank."""
    known = complete(items)
    if known is None:
        return None
    return tuple(
        tuple(dict.fromkeys(reason for one in rank for reason in one))
        for rank in zip(*known, strict=True)
    )
