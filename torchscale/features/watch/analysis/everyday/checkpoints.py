"""Checkpoints that steps wait for."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.exchanges.steps import Matrix
from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.interruptions import (
    Interruptions,
    find_interruptions,
)
from torchscale.features.watch.analysis.everyday.lines import slow_lines
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.watch.attempt import CheckpointCall
from torchscale.util.units import format_byte_rate, format_bytes, format_seconds
from torchscale.util.words import listed, plural

_IN_BACKGROUND = "async"
"""In the name of a call that returns before the checkpoint is complete."""


def find_checkpoints(watched: WatchedSteps) -> list[EverydayCause]:
    """Checkpoints that cost the job something: none where they are written in the background."""
    found = find_interruptions(watched, _held_up(watched))
    if found is None:
        return []
    saves = _saves(watched, found)
    lines, work = slow_lines(watched, found.most, found.steps, found.each)
    calls = sorted({save.call for save in saves}) or ["a call that saves"]
    evidence = [found.times]
    if work is not None:
        evidence.append(f"from {work.place}")
    evidence += _files(saves)
    if found.is_apart:
        evidence.append("ranks save in different steps, and all wait each time")
    cause = found.told(
        FindingKind.CHECKPOINTS,
        watched,
        lines,
        summary=f"checkpoints ({listed(calls)}) take {format_seconds(found.cost)} of each step on "
        f"average, {watched.where(found.rows)}{found.again}",
        evidence=evidence,
        advice=_advice(saves),
    )
    return [cause]


def _held_up(watched: WatchedSteps) -> Matrix:
    """Seconds of each rank and step: the calls that save, and with them what else makes such a step
    long, such as copies to the host and a flush of the disk."""
    table = watched.table
    longer = table.host_calm - np.median(table.host_calm, axis=1, keepdims=True)
    return np.asarray(np.where(table.saving > 0, np.maximum(table.saving, longer), 0.0))


def _saves(watched: WatchedSteps, found: Interruptions) -> list[CheckpointCall]:
    """What the ranks with most of it saved in these steps."""
    if not watched.evidence:
        return []
    return [
        save
        for row in found.rows
        for save in watched.evidence[row].saves
        if save.steps >= watched.first
    ]


def _files(saves: list[CheckpointCall]) -> list[str]:
    """``512 MiB each, 1.20 GB/s while it is written``: of the files whose size is known. One that
    was written again counts once."""
    sizes = [save.size for save in saves if save.size]
    if not sizes:
        return []
    rates = [
        save.size / (save.ended_ns - save.began_ns) * 1e9
        for save in saves
        if save.size and save.ended_ns > save.began_ns and _IN_BACKGROUND not in save.call
    ]
    each = format_bytes(float(np.median(sizes)))
    rate = f", {format_byte_rate(float(np.median(rates)))}" if rates else ""
    total = f"{plural(len(sizes), 'file')} of {format_bytes(sum(sizes))} in all, "
    return [f"{total * (len(sizes) > 1)}{each}{' each' * (len(sizes) > 1)}{rate}"]


def _advice(saves: list[CheckpointCall]) -> str:
    if saves and all(_IN_BACKGROUND in save.call for save in saves):
        return (
            "save less often; the copy to host memory is what is left: give async_save an "
            "async_stager that uses pinned memory"
        )
    return (
        "save less often, to a faster disk, or asynchronously "
        "(torch.distributed.checkpoint.async_save)"
    )
