"""Bandwidth of collectives as nccl-tests defines it."""

from __future__ import annotations

_FULL = {"all_reduce": 2.0}
_PARTIAL = {"all_gather", "reduce_scatter", "all_to_all"}
_WHOLE = {"broadcast", "reduce", "send_recv"}


def bus_factor(op: str, ranks: int) -> float | None:
    """busbw ÷ algbw: all-reduce 2(n−1)/n; all-gather, reduce-scatter, all-to-all (n−1)/n;
    broadcast, reduce and point-to-point 1; ``None`` for others and for fewer than two ranks.
    Source: NVIDIA nccl-tests, PERFORMANCE.md."""
    if ranks < 2:
        return None
    if op in _FULL:
        return 2 * (ranks - 1) / ranks
    if op in _PARTIAL:
        return (ranks - 1) / ranks
    return 1.0 if op in _WHOLE else None
