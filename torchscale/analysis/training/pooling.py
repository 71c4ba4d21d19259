"""Several launches of a cell as one: each launch counts once, however many steps it measured.

A launch's times are scaled to the cell's step, which is the geometric mean over launches. Shares of
the step are then means of the launches' shares, and parts add up to the same step that throughput
and efficiency are derived from.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import FetchedMemory, LinkProbe, Pauses, Signals, Windows
from torchscale.schema.launch.steps import RankSteps
from torchscale.schema.launch.training import TrainingResult


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
        launches: Of the same ranks, at least one.
        step_seconds: The cell's mean step.
    """
    if len(launches) == 1:
        return launches[0]
    first = launches[0]
    scales = [step_seconds / launch.step_seconds for launch in launches]
    typical = _typical_variation(launches)

    def series(values: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
        known = [
            value * scale for value, scale in zip(values, scales, strict=True) if value is not None
        ]
        return np.concatenate(known, axis=-1) if len(known) == len(values) else None

    unsynchronized = [launch.unsynchronized for launch in launches]
    by_rank = [
        series([None if item is None else item[row] for item in unsynchronized])
        for row in range(len(first.ranks))
    ]
    return Signals(
        origin=first.origin,
        ranks=first.ranks,
        step_seconds=step_seconds,
        steps=sum(launch.steps for launch in launches),
        weights=_weights(launches),
        compute=series([launch.compute for launch in launches]),
        unsynchronized=tuple(item for item in by_rank if item is not None)
        if all(item is not None for item in by_rank)
        else None,
        data_wait=series([launch.data_wait for launch in launches]),
        wait=series([launch.wait for launch in launches]),
        blame=_blame(launches),
        transfer=series([launch.transfer for launch in launches]),
        exposed_p50=None
        if typical is None
        else _scaled(launches[typical].exposed_p50, scales[typical]),
        exposed_p95=None
        if typical is None
        else _scaled(launches[typical].exposed_p95, scales[typical]),
        bucket_bytes=first.bucket_bytes,
        probe=_typical_probe([launch.probe for launch in launches]),
        link_bytes_per_second=_least([launch.link_bytes_per_second for launch in launches]),
        pauses=_pauses([launch.pauses for launch in launches], scales),
        windows=_windows([launch.windows for launch in launches], scales),
        other_processes=_mean([launch.other_processes for launch in launches]),
        throttled=_reasons([launch.throttled for launch in launches]),
        allocation_retries=_total([launch.allocation_retries for launch in launches]),
        page_faults=max(
            (launch.page_faults for launch in launches if launch.page_faults is not None),
            default=None,
        ),
        fetched_memory=_fetched_memory([launch.fetched_memory for launch in launches], scales),
        on_device=first.on_device,
        staged=any(launch.staged for launch in launches),
        stages=first.stages,
        why_no_stages=first.why_no_stages,
        micro_batches=first.micro_batches,
        hosts=first.hosts if all(launch.hosts == first.hosts for launch in launches) else None,
        trusted=all(launch.trusted for launch in launches),
    )


def _weights(launches: Sequence[Signals]) -> NDArray[np.float64] | None:
    """Of each sample, so that steps of a launch count equally and launches too."""
    parts = [launch.weights for launch in launches]
    known = [weights / weights.sum() for weights in parts if weights is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _scaled(seconds: float | None, scale: float) -> float | None:
    return None if seconds is None else seconds * scale


def _typical_variation(launches: Sequence[Signals]) -> int | None:
    """The launch whose exposed communication varies in the median way."""
    ratios = [
        (launch.exposed_p95 / launch.exposed_p50, place)
        for place, launch in enumerate(launches)
        if launch.exposed_p95 is not None and launch.exposed_p50
    ]
    return sorted(ratios)[(len(ratios) - 1) // 2][1] if len(ratios) == len(launches) else None


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
    known = [probe for probe in probes if probe is not None]
    if len(known) < len(probes):
        return None
    return sorted(known, key=lambda probe: probe.merged_seconds)[(len(known) - 1) // 2]


def _pauses(items: Sequence[Pauses | None], scales: Sequence[float]) -> Pauses | None:
    known = [(item, scale) for item, scale in zip(items, scales, strict=True) if item is not None]
    if len(known) < len(items):
        return None
    collection = [
        item.collection_seconds_per_step * scale
        for item, scale in known
        if item.collection_seconds_per_step is not None
    ]
    return Pauses(
        count=tuple(map(sum, zip(*(item.count for item, _ in known), strict=True))),
        seconds_per_step=statistics.fmean(item.seconds_per_step * scale for item, scale in known),
        collection_seconds_per_step=statistics.fmean(collection)
        if len(collection) == len(known)
        else None,
        by_rank=_mean_by_rank(
            [
                None if item.by_rank is None else [seconds * scale for seconds in item.by_rank]
                for item, scale in known
            ]
        ),
    )


def _mean_by_rank(items: Sequence[Sequence[float] | None]) -> tuple[float, ...] | None:
    known = [item for item in items if item is not None]
    return (
        tuple(map(statistics.fmean, zip(*known, strict=True))) if len(known) == len(items) else None
    )


def _windows(items: Sequence[Windows | None], scales: Sequence[float]) -> Windows | None:
    """Those of all launches, one after the other."""
    known = [(item, scale) for item, scale in zip(items, scales, strict=True) if item is not None]
    if len(known) < len(items):
        return None
    quiet = [item.quiet * scale for item, scale in known if item.quiet is not None]
    return Windows(
        np.concatenate([item.steps for item, _ in known]),
        np.concatenate([item.wall * scale for item, scale in known]),
        np.concatenate([item.compute * scale for item, scale in known], axis=1),
        np.concatenate(quiet, axis=1) if len(quiet) == len(known) else None,
    )


def _fetched_memory(
    items: Sequence[FetchedMemory | None], scales: Sequence[float]
) -> FetchedMemory | None:
    """That of the median launch: the heap ends otherwise in each, and what one of them lost is not
    the rule."""
    known = [
        replace(item, seconds_per_step=item.seconds_per_step * scale)
        for item, scale in zip(items, scales, strict=True)
        if item is not None
    ]
    if len(known) < len(items):
        return None
    return sorted(known, key=lambda item: item.seconds_per_step)[(len(known) - 1) // 2]


def _mean(items: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    known = [item for item in items if item is not None]
    return np.asarray(np.mean(known, axis=0)) if len(known) == len(items) else None


def _least(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return min(known) if len(known) == len(rates) else None


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _reasons(
    items: Sequence[tuple[tuple[str, ...], ...] | None],
) -> tuple[tuple[str, ...], ...] | None:
    """Of each rank, every reason of any launch."""
    known = [item for item in items if item is not None]
    if len(known) < len(items):
        return None
    return tuple(
        tuple(dict.fromkeys(reason for one in rank for reason in one))
        for rank in zip(*known, strict=True)
    )
