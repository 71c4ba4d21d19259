"""Measures the link between ranks: all-reduces of the gradients' sizes without any compute."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from time import perf_counter

import psutil
import torch
import torch.distributed as dist

from torchscale.schema.launch.signals import MERGED_BYTES, LinkSample
from torchscale.worker.process_group import Ranks

_BUFFER_BYTES = 64 << 20
"""Extra memory of the measurement, small against what training has left free."""
_BUDGET_SECONDS = 3.0
"""The timed rounds may add this much to a launch that takes tens of seconds."""
_REPEATS = 7
"""An odd number, so that the median is a sample; more would not change it on a steady link."""


def measure_link(bucket_bytes: Sequence[int], ranks: Ranks) -> LinkSample | None:
    """Time the all-reduces of a step's gradients, in the buckets that training uses and in buckets
    of 25 MiB.

    Buckets above 64 MiB go in pieces of that size, so that no more memory than that is taken.
    ``None`` where there is one rank only, or no gradient.
    """
    total = sum(bucket_bytes)
    if ranks.backend is None or total == 0:
        return None
    buffer = torch.zeros(min(_BUFFER_BYTES, total) // 4 + 1, device=ranks.device)
    merged = [min(MERGED_BYTES, total - begin) for begin in range(0, total, MERGED_BYTES)]
    plans = (_pieces(bucket_bytes), _pieces(merged))
    first = [_all_reduce_seconds(plan, buffer, ranks) for plan in plans]
    repeats = int(
        ranks.broadcast_scalar(max(1, min(_REPEATS, int(_BUDGET_SECONDS / max(sum(first), 1e-9)))))
    )
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for number, plan in enumerate(plans):  # alternating, so that a slow moment falls on both
            times[number].append(_all_reduce_seconds(plan, buffer, ranks))
    as_bucketed, merged_seconds = (statistics.median(values) for values in times)
    interface, rated = _interface(ranks)
    return LinkSample(
        payload_bytes=total,
        as_bucketed_seconds=as_bucketed,
        merged_seconds=merged_seconds,
        repeats=repeats,
        interface=interface,
        rated_bytes_per_second=rated,
    )


def _pieces(sizes: Sequence[int]) -> list[int]:
    """Number of fp32 elements of each all-reduce: a bucket above the buffer size is cut."""
    elements = []
    for size in sizes:
        while size > _BUFFER_BYTES:
            elements.append(_BUFFER_BYTES // 4)
            size -= _BUFFER_BYTES  # noqa: PLW2901 - what is left of it
        elements.append(max(1, size // 4))
    return elements


def _all_reduce_seconds(elements: Sequence[int], buffer: torch.Tensor, ranks: Ranks) -> float:
    """Seconds from a barrier until all all-reduces are done; several run at once, as in
    training."""
    ranks.barrier()
    _finish(ranks)
    began = perf_counter()
    works: list[dist.Work | None] = []
    used = 0
    for count in elements:
        if used + count > len(buffer):
            _wait(works)
            works, used = [], 0
        works.append(dist.all_reduce(buffer[used : used + count], async_op=True))
        used += count
    _wait(works)
    _finish(ranks)
    return perf_counter() - began


def _wait(works: Sequence[dist.Work | None]) -> None:
    for work in works:
        if work is not None:
            work.wait()


def _finish(ranks: Ranks) -> None:
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)


def _interface(ranks: Ranks) -> tuple[str | None, float | None]:
    """The network interface that gloo uses, and its rated bytes per second. NCCL's choice is not
    known here."""
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    if ranks.device.type == "cuda" or not name or "," in name or "/" in name:
        return None, None
    status = psutil.net_if_stats().get(name)  # of this network namespace, which /sys need not show
    return (
        name,
        status.speed * 1e6 / 8 if status is not None and status.speed > 0 else None,
    )  # the loopback has none
