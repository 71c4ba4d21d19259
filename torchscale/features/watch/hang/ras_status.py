"""Reads the JSON that NCCL's RAS service sends (NCCL 2.28.7 and later), and says what in it points
to a hang.

Format: NCCL user guide, "RAS", section "JSON Output".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

import msgspec

from torchscale.errors import TraceError
from torchscale.util.text import one_line

MAX_STATUS_BYTES = 16 << 20
"""A rank takes about 500 bytes, so this holds some 30,000."""
_MAX_NOTES = 8
_MAX_RANKS = 8
"""Ranks that one note names."""
_MAX_TEXT = 400
_RULE = re.compile(r"={3,}\s*")
_SECTIONS = ("Errors", "Warnings")


class _Status(msgspec.Struct):
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = 0
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str = ""
    size: int = 0
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class RasStatus(msgspec.Struct):
    """What RAS says about every communicator of the job that answered."""

    communicators: list[_Communicator]


def read_ras(data: bytes) -> RasStatus:
    """The status in ``data``: the reply of the service, its lines before the JSON included.

    Raises:
        TraceError: it holds no status in JSON, as of NCCL before 2.28.7.
    """
    start = re.search(rb"^\s*\{", data, re.MULTILINE)
    if start is None or len(data) > MAX_STATUS_BYTES:
        raise TraceError(
            "no JSON in the reply of NCCL's RAS service; it needs NCCL 2.28.7 or later"
        )
    try:
        return msgspec.json.decode(data[start.start() :], type=RasStatus)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise TraceError(f"the reply of NCCL's RAS service is damaged: {error}") from error


def saved_ras_notes(data: bytes) -> tuple[str, ...]:
    """What points to a hang in a reply of the service that somebody has saved: its JSON, or the
    blocks under "Errors" and "Warnings" of its text."""
    try:
        return ras_notes(read_ras(data), None)
    except TraceError:
        text = data[:MAX_STATUS_BYTES].decode("utf-8", errors="replace")
    blocks: list[list[str]] = []
    in_section = False
    for title, line in itertools.pairwise(["", *text.splitlines()]):
        if _RULE.fullmatch(line):
            in_section = title.strip() in _SECTIONS
        elif in_section and line.startswith("#"):
            blocks.append([])
        if in_section and blocks and line.startswith(("#", " ")) and line.strip():
            blocks[-1].append(one_line(line.strip()))
    return tuple(f"NCCL RAS: {'; '.join(lines)[:_MAX_TEXT]}" for lines in blocks[:_MAX_NOTES])


def ras_notes(status: RasStatus, pids: Collection[int] | None) -> tuple[str, ...]:
    """Which ranks are behind or do not respond, a line each.

    Args:
        status: Status of the service, which may be another job's.
        pids: Processes of our ranks on this machine: communicators without any of them are left
            out. ``None`` where the status is known to be of this job.
    """
    notes: list[str] = []
    for communicator in status.communicators:
        members = [*communicator.ranks, *communicator.missing_ranks]
        if pids is not None and not any(rank.pid in pids for rank in members):
            continue
        name = f"NCCL RAS, communicator {communicator.hash} of {communicator.size} ranks"
        for rank in communicator.missing_ranks[:_MAX_RANKS]:
            state = "does not respond"
            if rank.status.considered_dead:
                state = "is considered dead"
            notes.append(f"{name}: rank {rank.rank} (pid {rank.pid} on {rank.host}) {state}")
        operations = sorted(
            {name for rank in communicator.ranks for name in rank.collective_counts}
        )
        for operation in operations:
            counts = {
                rank.rank: rank.collective_counts.get(operation, 0) for rank in communicator.ranks
            }
            most = max(counts.values())
            behind = [
                f"rank {rank} {count}" for rank, count in sorted(counts.items()) if count < most
            ]
            if behind:
                more = ""
                if len(behind) > _MAX_RANKS:
                    more = f" and {len(behind) - _MAX_RANKS} more"
                notes.append(
                    f"{name}: {operation} called {most} times, by "
                    f"{', '.join(behind[:_MAX_RANKS])}{more}"
                )
    return tuple(notes[:_MAX_NOTES])
