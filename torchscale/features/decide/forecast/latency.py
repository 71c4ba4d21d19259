"""How much of the time of a step's gradient exchange is latency, which grows with the number of
nodes."""

from __future__ import annotations

import math

from torchscale.analysis.diagnosis.signals import LinkProbe
from torchscale.features.decide.forecast.series import Latency
from torchscale.schema.launch.signals import MERGED_BYTES


def gradient_latency(
    link: LinkProbe, buckets: int, all_reduce: float | None, *, of_ring: bool
) -> Latency | None:
    """The same bytes take longer in the buckets of training than in few large ones: the difference
    is latency. What is left of it in those large ones is taken off by the latency of one
    all-reduce.

    Args:
        link: Both, with nothing else running.
        buckets: Number of buckets in training.
        all_reduce: Latency of one, seconds, by the curve of collectives measured at the same count;
            ``None`` for what the two measurements say of it.
        of_ring: As in :class:`Latency`.

    Returns:
        ``None`` where nothing says what an all-reduce's latency is: as many buckets as large ones,
        and no curve.
    """
    merged = math.ceil(link.payload_bytes / MERGED_BYTES)
    if all_reduce is None:
        if buckets <= merged:
            return None
        all_reduce = max(0.0, link.as_bucketed_seconds - link.merged_seconds) / (buckets - merged)
    if link.as_bucketed_seconds <= 0:
        return None
    of_bytes = max(0.0, link.merged_seconds - merged * all_reduce)
    return Latency(min(1.0, max(0.0, 1 - of_bytes / link.as_bucketed_seconds)), of_ring)
