"""What the rules of the diagnosis look at, wherever it was measured: the always-on signals, or a recording."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
"""One value a sample; a sample is a batch of steps (always-on signals) or a step (recordings)."""
Matrix = NDArray[np.float64]
"""Rows are ranks, columns samples."""


class Origin(Enum):
    """Where signals come from."""

    LAUNCH = "always-on signals"
    TRACE = "recording"


@dataclass(frozen=True)
class LinkProbe:
    """All-reduces timed alone: the gradients in the buckets that training uses, and in buckets of 25 MiB."""

    payload_bytes: int
    as_bucketed_seconds: float
    merged_seconds: float


@dataclass(frozen=True)
class Pauses:
    """Rare long steps of each rank: those over 1.5 times its median, where they are at most a tenth of its steps.

    Attributes:
        count: Of them, per rank; 0 where they are not rare.
        seconds_per_step: What they exceed the median by, per step, for the rank with most.
        collection_seconds_per_step: Python's garbage collection, for the rank with most; ``None`` if not measured.
    """

    count: tuple[int, ...]
    seconds_per_step: float
    collection_seconds_per_step: float | None


@dataclass(frozen=True)
class Signals:
    """Everything that a rule may ask for; ``None`` was not measured, and rules that need it abstain.

    Times are seconds per step.

    Attributes:
        origin: Signals or recording.
        ranks: Global ranks, in the order of rows.
        step_seconds: The group's mean step.
        steps: How many stand behind the means.
        collectives: How many were compared; ``None`` for the always-on signals, which go by steps.
        own: What a rank does by itself: neither waiting for others or data nor exchanging.
        alone: Forward and backward without synchronisation, in windows apart (always-on signals alone).
        data_wait: Waiting for data.
        wait: Waiting for ranks that arrive later at the exchange of gradients.
        charge: Share of all waiting for which each rank was the last to arrive; sums to 1, or all 0.
        transfer: Exposed exchange once all have arrived, mean over ranks.
        exposed_p50, exposed_p95: Quantiles over steps of waiting and exchange together, mean over ranks.
        overlap: Share of communication under compute.
        bucket_bytes: Gradient buckets of a step.
        probe: The link, measured alone.
        link_bytes_per_second: What the link is rated at.
        pauses: Rare long steps.
        foreign: Share of each rank's cores that went to other processes.
        host_bound: The device idle because the host launches late; on CPU, time between operators.
        readbacks: Values read back from the device, per step.
        readback_wait: The host's waiting for them.
        pageable: Copies from or to memory that is not pinned, outside compute.
        throttled: Names of the reasons for lowered clocks, per rank.
        allocation_retries: Of the device's allocator while measuring, summed over ranks.
        page_faults: Pages read back from disk per step, for the rank with most.
        on_device: Whether the work runs on a device beside the host.
        staged: Whether ranks mostly exchange by sends and receives, as stages of a pipeline do: they hold different
        work,
            and wait for one another by design.
        trusted: Whether the recording is good enough to name a rank.
    """

    origin: Origin
    ranks: tuple[int, ...]
    step_seconds: float
    steps: int
    collectives: int | None = None
    own: Matrix | None = None
    alone: tuple[Series, ...] | None = None
    data_wait: Matrix | None = None
    wait: Matrix | None = None
    charge: Series | None = None
    transfer: Series | None = None
    exposed_p50: float | None = None
    exposed_p95: float | None = None
    overlap: float | None = None
    bucket_bytes: tuple[int, ...] | None = None
    probe: LinkProbe | None = None
    link_bytes_per_second: float | None = None
    pauses: Pauses | None = None
    foreign: Series | None = None
    host_bound: Series | None = None
    readbacks: float | None = None
    readback_wait: float | None = None
    pageable: float | None = None
    throttled: tuple[tuple[str, ...], ...] | None = None
    allocation_retries: int | None = None
    page_faults: float | None = None
    on_device: bool = True
    staged: bool = False
    trusted: bool = True


def rare_long_steps(seconds: Matrix, collection_seconds: float | None = None) -> Pauses | None:
    """Pauses from the steps of each rank (rows); ``None`` for fewer than 20 steps, where nothing is rare."""
    if seconds.shape[1] < 20:
        return None
    medians = np.median(seconds, axis=1, keepdims=True)
    long = seconds > 1.5 * medians
    rare = long.mean(axis=1) <= 0.10
    counts = np.where(rare, long.sum(axis=1), 0)
    excess = np.where(long, seconds - medians, 0.0).mean(axis=1) * rare
    return Pauses(tuple(int(count) for count in counts), float(excess.max()), collection_seconds)
