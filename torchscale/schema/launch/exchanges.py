"""What a rank of a launch noted of its collectives: ``exchanges-rank-R.jsonl``."""

from __future__ import annotations

from torchscale.schema.base import (
    Count,
    Frozen,
    Integer,
)


def exchanges_file(rank: int | str) -> str:
    """Name of a rank's file in the directory of its launch."""
    return f"exchanges-rank-{rank}.jsonl"


class ExchangeBatch(Frozen):
    """A batch of measured steps. It is read by its parts and not here, since there are many.

    Attributes:
        start_ns: What the marks count from; nanoseconds since the epoch.
        marks: Start of the batch and end of each step, begin and end of each wait for a collective;
            packed as the collector of watched jobs packs them (``worker/watch/marks.py``).
        calls: Collectives: when each was called (nanoseconds since the epoch), its number in its
            process group, its place in ``names``.
        names: Process group, operation, bytes.
        groups: Process group → its global ranks.
        includes_sync: Whether the exchanges of gradients and buffers, which are phases of their
            own, are among the waits.
        lost: Collectives that torch's flight recorder had overwritten before they were read.
    """

    start_ns: Count
    marks: tuple[Integer, ...]
    calls: tuple[tuple[Count, Count, Count], ...]
    names: tuple[tuple[str, str, Count], ...]
    groups: dict[str, tuple[Count, ...]]
    lost: Count
    includes_sync: bool = False
