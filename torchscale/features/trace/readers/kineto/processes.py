"""Whose an event is: ranks that were merged into one file, and devices of one process."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.readers.kineto.collectives import CommunicationKernel
from torchscale.features.trace.span import SpanKind, Spans

_RANK = re.compile(r"(?:rank|worker)[ _:#=-]*(\d{1,6})", re.IGNORECASE)
_BRACKETED = re.compile(r"\s*\[([^\]]{1,80})\]")
"""``[TP00] 4000``, ``[TP01-PP00] 0``: sglang's merged profiles."""
_DIMENSION = re.compile(r"([A-Za-z]+)[ _:=-]?(\d{1,6})")
_ORDER = {"NODE": 0, "PP": 1, "DP": 2, "CP": 4, "SP": 4, "EP": 5, "TP": 6}
_UNKNOWN = 3
_NUMBER = re.compile(r"(\d{1,15})\s*$")
_LEAST_SHARE = 0.01
"""A rank that opened a context on another device leaves a fill or two there; a device with less of
the time is not one of several."""
_MICROSECOND = 1000


def label_of(pid: int | str) -> str:
    """What stands before the number of a process in a file of several ranks; empty for a number,
    and for text that names no rank (``Spans``)."""
    if isinstance(pid, int):
        return ""
    bracketed = _BRACKETED.match(pid)
    if bracketed is not None:
        return bracketed[1].strip()
    rank = _RANK.search(pid)
    if rank is not None:
        return f"rank {int(rank[1])}"
    return ""


def number_of(pid: int | str) -> int:
    """The number of a process; 0 for text without one."""
    if isinstance(pid, int):
        return pid
    match = _NUMBER.search(pid)
    if match is None:
        return 0
    return int(match[1])


def device_of(pid: int | str) -> int:
    """The device whose events have this process: Kineto puts its number there."""
    number = number_of(pid)
    if 0 <= number < 1 << 31:
        return number
    return 0


def ranks_of(labels: Sequence[str]) -> list[int]:
    """The rank of each label: its number where one dimension alone differs (``TP00``, ``TP01``),
    else its place in the order in which launchers number ranks: stages of a pipeline outermost,
    tensor parallelism innermost."""
    found = [_dimensions(label) for label in labels]
    names = [name for name, _ in max(found, key=len)]
    differing = [
        numbers
        for name in names
        if len(set(numbers := [dict(dimensions).get(name, 0) for dimensions in found])) > 1
    ]
    if len(differing) == 1 and len(set(differing[0])) == len(labels):
        return differing[0]
    ordered = sorted(
        range(len(labels)), key=lambda place: (_outermost(found[place]), labels[place])
    )
    return [ordered.index(place) for place in range(len(labels))]


def _dimensions(label: str) -> list[tuple[str, int]]:
    return [(name.upper(), int(number)) for name, number in _DIMENSION.findall(label)]


def _outermost(dimensions: Sequence[tuple[str, int]]) -> list[int]:
    """The numbers of a label in the order of its dimensions, the outermost first; those that are
    not known stay where they are, before tensor parallelism."""
    ordered = sorted(dimensions, key=lambda item: _ORDER.get(item[0], _UNKNOWN))
    return [number for _, number in ordered]


def main_devices(
    spans: Spans, device: NDArray[np.int64], kernels: Sequence[CommunicationKernel]
) -> list[int]:
    """Devices that have a share of the time of all kernels and copies."""
    work = spans.of(SpanKind.COMPUTE, SpanKind.COPY)
    used, place = np.unique(device[work], return_inverse=True)
    lengths = (spans.end - spans.start)[work].astype(np.float64)
    seconds = dict(zip(used.tolist(), np.bincount(np.ravel(place), lengths).tolist(), strict=True))
    for kernel in kernels:
        seconds[kernel.device] = seconds.get(kernel.device, 0.0) + kernel.dur * _MICROSECOND
    least = _LEAST_SHARE * sum(seconds.values())
    return sorted(number for number, value in seconds.items() if value > least)
