"""The last collectives of ranks that have ended, from the files of their collectors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torchscale.errors import StoreError
from torchscale.features.watch.hang.collective_log import (
    DEFAULT_GROUP_DESCRIPTION,
    CollectiveCall,
    CollectiveLog,
    ProcessGroup,
)
from torchscale.features.watch.job.rank_folders import rank_folders
from torchscale.features.watch.job.stream import Names, RankStream
from torchscale.util.files import read_bounded
from torchscale.util.text import one_line
from torchscale.worker.watch.last_call_form import FILE, FORM

_MOST_CALLS = 2_000
"""Of a rank, the last: what torch's recorder has of it."""
_MOST_RANKS = 256
"""Whose files are read again: each has up to 24 MB."""
_MOST_KINDS = 1_000
"""Of collectives: from then on a collector rounds sizes, and ranks cannot be compared by them."""
_DEFAULT_GROUPS = frozenset({"0", "default_pg"})
"""Names that torch gives the group of ``init_process_group``."""


def ended_calls(directory: Path, attempt: int) -> dict[int, CollectiveLog]:
    """Rank → its last collectives, of those whose files can be read. A rank that lost its last ones
    has those of another rank in their place, up to the one that it noted itself: all ranks of a
    group call the same until one does not."""
    folders = {
        rank: folder
        for (rank, number), folder in rank_folders(directory).items()
        if number == attempt
    }
    names = Names()
    logs: dict[int, CollectiveLog] = {}
    for rank in sorted(folders)[:_MOST_RANKS]:
        try:
            logs[rank] = _log(folders[rank], names)
        except StoreError:
            continue
    if len(names.calls) >= _MOST_KINDS:
        return {}
    noted = {rank: call for rank in logs if (call := _noted(folders[rank])) is not None}
    return {
        rank: _with_last(log, noted[rank], logs) if rank in noted else log
        for rank, log in logs.items()
    }


def _log(folder: Path, names: Names) -> CollectiveLog:
    """The collectives of a rank as torch's recorder would have them.

    Raises:
        StoreError: a file is damaged.
    """
    calls = RankStream(folder, names).read().calls
    groups = {number: key for key, number in names.groups.items()}
    operations = {number: key for key, number in names.calls.items()}
    found = []
    rows = zip(calls.time, calls.sequence, calls.group, calls.what, strict=True)
    for time, number, group, what in list(rows)[-_MOST_CALLS:]:
        name, backend, is_p2p = groups[int(group)]
        operation, size = operations[int(what)]
        found.append(
            CollectiveCall(
                group=one_line(name),
                sequence=int(number),
                operation=one_line(operation),
                is_p2p=is_p2p,
                is_done=True,
                created_ns=int(time),
                backend=one_line(backend),
                size=size,
            )
        )
    used = {call.group for call in found}
    described = dict.fromkeys(used & _DEFAULT_GROUPS, DEFAULT_GROUP_DESCRIPTION)
    return CollectiveLog(
        tuple(found),
        {
            name: ProcessGroup(described.get(name, ""), names.ranks.get(name, ()))
            for name in sorted(used)
        },
        truncated=_truncated(found),
    )


def _truncated(calls: list[CollectiveCall]) -> frozenset[str]:
    """Backends whose first calls are not there."""
    first: dict[tuple[str, str], int] = {}
    for call in calls:
        first.setdefault((call.backend, call.group), call.sequence)
    return frozenset(backend for (backend, _), number in first.items() if number > 1)


def _noted(folder: Path) -> CollectiveCall | None:
    """What the rank noted itself as its last call; ``None`` where it noted none."""
    try:
        content = read_bounded(folder / FILE, FORM.size, within=folder.parent.parent)
        time, number, size, elements, name, dtype, group = FORM.unpack(content)
    except (OSError, ValueError, struct.error):
        return None
    if not time or min(number, size, elements) < 0:
        return None
    return CollectiveCall(
        group=_text(group),
        sequence=number,
        operation=_text(name),
        is_p2p=False,
        is_done=False,
        created_ns=time,
        input_sizes=((elements,),),
        input_dtypes=(_text(dtype).removeprefix("torch."),),
        backend="gloo",
        size=size,
    )


def _text(value: bytes) -> str:
    return one_line(value.rstrip(b"\0").decode(errors="replace"))


def _with_last(
    log: CollectiveLog, last: CollectiveCall, logs: Mapping[int, CollectiveLog]
) -> CollectiveLog:
    mine = _of_group(log, last)
    if last.sequence in mine:
        calls = tuple(
            last if call is mine[last.sequence] and call.size == last.size else call
            for call in log.calls
        )
        return replace(log, calls=calls)
    latest = max(mine, default=0)
    lost = range(latest + 1, last.sequence)
    filling = next(
        (found for one in logs.values() if set(lost) <= set(found := _of_group(one, last))), None
    )
    if latest > last.sequence or filling is None:
        return log
    groups = {**log.groups}
    groups.setdefault(
        last.group,
        next(
            (one.groups[last.group] for one in logs.values() if last.group in one.groups),
            ProcessGroup(),
        ),
    )
    return replace(
        log, calls=(*log.calls, *(filling[number] for number in lost), last), groups=groups
    )


def _of_group(log: CollectiveLog, call: CollectiveCall) -> dict[int, CollectiveCall]:
    """Number → collective, of the group and backend of ``call``."""
    return {
        one.sequence: one
        for one in log.calls
        if (one.group, one.backend, one.is_p2p) == (call.group, call.backend, False)
    }
