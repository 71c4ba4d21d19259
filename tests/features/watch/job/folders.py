"""Folders of watched jobs, as their collectors write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.features.watch.analysis.jobs import START_NS
from torchscale.analysis.exchanges.events import MomentKind, RankEvents

FACTS: dict[str, Any] = {
    "format": 1,
    "pid": 1,
    "host": "here",
    "start_ns": START_NS,
    "began": 1_700_000_000.0,
    "restart": 0,
    "torch": "2.13.0",
    "python": "3.11.7",
    "backend": "gloo",
    "device": "cpu",
    "has_recorder": True,
    "state": "ended",
    "problem": "",
}
USE: dict[str, Any] = {
    "cpu_seconds": 12.5,
    "peak_memory_bytes": 300 << 20,
    "major_faults": 0,
    "minor_faults": 10,
    "lost_calls": 0,
}


def write_job(
    directory: Path, ranks: Sequence[RankEvents], attempt: int = 0, **facts: object
) -> Path:
    """All that the ranks of a job have written; ``facts`` replace those of every rank."""
    for number, events in enumerate(ranks):
        folder = directory / "ranks" / f"{number}.{attempt}"
        folder.mkdir(parents=True)
        sizes = {"world_size": len(ranks), "local_world_size": len(ranks)}
        known = {**FACTS, "rank": number, "pid": 1 + number, **sizes, **facts}
        (folder / "rank.json").write_text(json.dumps(known))
        (folder / "use.json").write_text(json.dumps(USE))
        write_names(folder, len(ranks))
        append(folder, events)
    return directory


def write_samples(
    directory: Path,
    rank: int,
    lines: Mapping[int, int],
    between: tuple[float, float] = (0.2, 2.2),
) -> None:
    """Where a rank was seen between these seconds of its steps: line → samples."""
    folder = directory / "ranks" / f"{rank}.0"
    places = [
        {"place": place, "file": "/home/me/train.py", "line": line, "function": "log", "called": ""}
        for place, line in enumerate(lines)
    ]
    with (folder / "names.jsonl").open("a") as file:
        file.write("".join(json.dumps(place) + "\n" for place in places))
    seen = np.repeat(np.arange(len(lines)), list(lines.values()))
    first, last = (round(seconds * 1e9) for seconds in between)
    times = START_NS + np.linspace(first, last, len(seen)).astype(np.int64)
    rows = np.stack([times, seen], axis=1)
    (folder / "samples-000001.bin").write_bytes(rows.tobytes())


def write_start(directory: Path, *group_seconds: float) -> None:
    """The start of each rank, 30 s before the end of its first step: torch was there 5 s later,
    and its process group was made after so many seconds; all were through with that after 28 s."""
    began = START_NS - 30_000_000_000
    for number, seconds in enumerate(group_seconds):
        path = directory / "ranks" / f"{number}.0" / "rank.json"
        startup = {
            "python_ns": began + 50_000_000,
            "imported_ns": began + 5_000_000_000,
            "group_ns": began + round(seconds * 1e9),
            "grouped_ns": began + 28_000_000_000,
        }
        facts = {"process_began": began * 1e-9, "startup": startup}
        path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def write_names(folder: Path, ranks: int) -> None:
    """One group of all ranks, and one collective."""
    names = [
        {"name": "0", "ranks": list(range(ranks))},
        {
            "key": 0,
            "backend": "gloo",
            "group": "0",
            "operation": "all_reduce",
            "bytes": 1 << 20,
            "p2p": False,
        },
    ]
    (folder / "names.jsonl").write_text("".join(json.dumps(line) + "\n" for line in names))


def append(folder: Path, events: RankEvents, segment: int = 1) -> None:
    """Moments and collectives, at the end of a segment."""
    moments, calls = events.moments, events.calls
    packed = moments.time - START_NS << 8 | moments.detail << 5 | moments.kind
    table = np.stack([calls.time, calls.sequence, np.zeros_like(calls.time)], axis=1)
    for name, values in (("marks", packed), ("calls", table)):
        with (folder / f"{name}-{segment:06d}.bin").open("ab") as file:
            file.write(np.ascontiguousarray(values, dtype=np.int64).tobytes())


def until(events: RankEvents, time: int, *, drained: bool = False) -> tuple[RankEvents, RankEvents]:
    """What a rank had noted before a moment, and the rest; ``drained``: with the moment as one at
    which it read its recorder."""
    moments, calls = events.moments, events.calls
    early = moments.time < time
    kind, detail, when = moments.kind[early], moments.detail[early], moments.time[early]
    if drained:
        when = np.append(when, [time - 1, time - 1])
        kind = np.append(kind, [int(MomentKind.DRAIN), int(MomentKind.DRAIN_END)])
        detail = np.append(detail, [0, 0])
    first = RankEvents(
        type(moments)(when, kind, detail), calls.only(calls.time < time), events.core_time
    )
    rest = RankEvents(
        type(moments)(moments.time[~early], moments.kind[~early], moments.detail[~early]),
        calls.only(calls.time >= time),
        events.core_time,
    )
    return first, rest
