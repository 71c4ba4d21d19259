"""Whether a recording of several ranks holds their communication: what is not recognized as such
would be called compute, and waits in it would be lost."""

from __future__ import annotations

import numpy as np

from torchscale.catalog.backends import is_nccl, names_in, runs_on_device
from torchscale.catalog.communication import may_communicate
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.windows import job_size
from torchscale.features.trace.span import RankTrace, SpanKind, Trace

_LEAST_SHARE = 0.01
"""Share of the time of all kernels from which unknown ones change what is said of waits."""
_MAX_SHOWN, _MAX_NAME = 3, 60


def check_communication(trace: Trace) -> None:
    """Refuse a recording without communication, where its backend communicates on the device: that
    is not communication of 0 %.

    Raises:
        TraceError: nothing in a rank's recording is recognized.
    """
    if job_size(trace) < 2:
        return
    for rank in trace.ranks:
        if not rank.on_device or not runs_on_device(rank.backend) or _communicates(rank):
            continue
        backend = "NCCL" if is_nccl(rank.backend) else ", ".join(sorted(names_in(rank.backend)))
        hint = (
            "communication was not recorded, or its kernels have names that are not known here; "
            "record several whole steps with the activities of the device"
        )
        similar = _similar(rank)
        if similar:
            hint = f"kernels that look like communication: {_listed(similar)}"
        raise TraceError(
            f"{rank.source}: its backend is {backend}, but it holds no kernel of communication "
            "that is known here",
            hint=hint,
        )


def about_communication(trace: Trace) -> list[str]:
    """Why waits and shares are to be taken with care: communication that may be called compute."""
    if job_size(trace) < 2:
        return []
    similar: dict[str, float] = {}
    for rank in trace.ranks:
        if rank.on_device:
            for name, share in _similar(rank).items():
                similar[name] = max(share, similar.get(name, 0.0))
    if sum(similar.values()) >= _LEAST_SHARE:
        return [f"kernels that look like communication count as compute: {_listed(similar)}"]
    silent = [rank for rank in trace.ranks if rank.on_device and not _communicates(rank)]
    if not silent:
        return []
    return [
        f"{len(silent)} of {len(trace.ranks)} ranks recorded no communication that is known here; "
        "if they do communicate, it counts as compute"
    ]


def _communicates(rank: RankTrace) -> bool:
    return len(rank.collectives) > 0 or bool(rank.spans.between_devices.any())


def _similar(rank: RankTrace) -> dict[str, float]:
    """Share of the time of all kernels of those whose names look like communication."""
    wanted = [number for number, name in enumerate(rank.names) if may_communicate(name)]
    if not wanted:
        return {}
    kernels = rank.spans.of(SpanKind.COMPUTE)
    names = rank.spans.name[kernels]
    lengths = (rank.spans.end - rank.spans.start)[kernels].astype(np.float64)
    seconds = np.bincount(names, lengths, minlength=len(rank.names))
    together = max(1.0, float(lengths.sum()))
    return {
        rank.names[number]: float(seconds[number]) / together
        for number in wanted
        if seconds[number]
    }


def _listed(similar: dict[str, float]) -> str:
    ordered = sorted(similar.items(), key=lambda item: -item[1])
    shown = [
        f"{name[:_MAX_NAME]} ({share * 100:.1f} % of kernel time)"
        for name, share in ordered[:_MAX_SHOWN]
    ]
    return ", ".join(shown) + " …" * (len(ordered) > _MAX_SHOWN)
