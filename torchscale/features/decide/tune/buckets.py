"""Predicts how long gradient sync is exposed for a size of DDP's buckets: when gradients are ready,
and what an all-reduce costs. Pure.

Buckets are reduced one after the other. Each starts when its last gradient is ready and the one
before it is done, and takes a latency and a time per byte. What ends after the last gradient is
exposed. Small buckets start early and pay the latency often; large ones start late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchscale.schema.launch.signals import MERGED_BYTES, LinkSample

FIRST_BUCKET_BYTES = 1 << 20
"""DDP's first bucket is of 1 MiB, so that the first reduction starts early (torch.distributed
``_DEFAULT_FIRST_BUCKET_BYTES``)."""


@dataclass(frozen=True)
class Reduction:
    """What an all-reduce costs: seconds = ``latency`` + bytes × ``seconds_per_byte``."""

    latency: float
    seconds_per_byte: float

    def seconds(self, size: int) -> float:
        """Seconds of the all-reduce of one bucket of ``size`` bytes."""
        return self.latency + size * self.seconds_per_byte


def reduction(link: LinkSample, buckets: int) -> Reduction | None:
    """Cost of an all-reduce, from the same gradients reduced in ``buckets`` pieces and in pieces of
    25 MiB; ``None`` where both are the same, or where fewer pieces took longer."""
    merged = -(-link.payload_bytes // MERGED_BYTES)
    if buckets <= merged or not link.payload_bytes:
        return None
    latency = (link.as_bucketed_seconds - link.merged_seconds) / (buckets - merged)
    per_byte = (link.merged_seconds - merged * latency) / link.payload_bytes
    return Reduction(latency, per_byte) if latency > 0 and per_byte > 0 else None


def exposed_seconds(
    sizes: Sequence[int], ready: Sequence[float], cap_bytes: float, cost: Reduction
) -> float:
    """Exposed gradient sync of a step with buckets of ``cap_bytes``.

    Args:
        sizes: Bytes of pieces of the gradients, in the order in which they get ready.
        ready: When each is ready, seconds after the first.
        cap_bytes: A bucket is complete once it holds as much; at least a piece.
        cost: Cost of an all-reduce.
    """
    done = ready[0]
    for size, at in _buckets(sizes, ready, cap_bytes):
        done = max(done, at) + cost.seconds(size)
    return done - ready[-1]


def _buckets(
    sizes: Sequence[int], ready: Sequence[float], cap_bytes: float
) -> Iterator[tuple[int, float]]:
    """Bytes of each bucket, and when its last piece is ready."""
    held, cap = 0, min(FIRST_BUCKET_BYTES, cap_bytes)
    for size, at in zip(sizes, ready, strict=True):
        held += size
        if held >= cap:
            yield held, at
            held, cap = 0, cap_bytes
    if held:
        yield held, ready[-1]
