"""Where a launch broke: file and line, the end of the traceback, the log."""

from __future__ import annotations

import re

from torchscale.report.text.autopsy import autopsy_lines
from torchscale.report.values import only_if
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_LIBRARY = (
    "/site-packages/",
    "/dist-packages/",
    "/torchscale/worker/",
    "<frozen ",
    "/lib/python3.",
)
"""Parts of paths of code that is not the user's: an error is looked for in the user's first."""
_LOG_PART = re.compile(r"(?:\A|\n\n)(?:rank (\d+)|torchrun):\n")
_NAMED_RANK = re.compile(r"ranks? (\d+)")
_EXCERPT_LINES = 8
"""Enough for the user's last frames and the message; the log has the rest."""


def failure_excerpt(record: LaunchRecord) -> tuple[str, ...]:
    """What a person needs to find the cause: its place, the last lines of the traceback or of the
    log, and the log's path in the run folder; empty for a launch that did not fail."""
    cause = failure_cause(record)
    if record.autopsy is not None:
        autopsy = autopsy_lines(record.autopsy)
    else:
        autopsy = ()
    if record.autopsy is not None and record.state is State.TIMEOUT:
        return (*autopsy, f"log: {log_path(record, min(record.autopsy.ranks, default=0))}")
    if cause is None:
        rank, text = _logged(record)
        tail = _last_lines(text)
        return (*tail, *only_if(tail, f"log: {log_path(record, rank)}"))
    place = failure_place(cause)
    return (
        *autopsy,
        *only_if(place, f"at {place}"),
        *_last_lines(cause.traceback),
        f"log: {log_path(record, cause.rank)}",
    )


def failure_cause(record: LaunchRecord) -> RankFailure | None:
    """What broke first by itself: not the ranks that lost their peer; ``None`` where no rank said
    anything."""
    by_itself = [
        failure for failure in record.failures if failure.kind is not FailureKind.PEER_LOST
    ]
    return next(iter(by_itself or record.failures), None)


def failure_place(failure: RankFailure) -> str:
    """``/home/me/net.py:12 in forward``: the innermost line of the user's own code, else of any;
    empty without a traceback."""
    frames = [
        match
        for line in failure.traceback.splitlines()
        if (match := _FRAME.match(line)) is not None
    ]
    chosen = ([frame for frame in frames if _is_own(frame)] or frames)[-1:]
    return "".join(f"{frame['file']}:{frame['line']} in {frame['function']}" for frame in chosen)


def log_path(record: LaunchRecord, rank: int) -> str:
    """The rank's log, relative to the run folder."""
    return f"cells/{record.cell_id}/launch-{record.launch}/rank-{rank}.stderr.log"


def _logged(record: LaunchRecord) -> tuple[int, str]:
    """The rank that the reason names, else the last that printed anything, and what it printed;
    what torchrun printed where no rank did."""
    first, *pieces = _LOG_PART.split(record.log_tail)
    ranks = {
        int(rank): text
        for rank, text in zip(pieces[::2], pieces[1::2], strict=True)
        if rank is not None
    }
    if not ranks:
        return 0, "\n".join([first, *pieces[1::2]])
    named = _NAMED_RANK.match(record.reason)
    rank = max(ranks)
    if named is not None and int(named[1]) in ranks:
        rank = int(named[1])
    return rank, ranks[rank]


def _last_lines(traceback: str) -> list[str]:
    """The end of a traceback or of a log: without frames of libraries where there are others, and without lines
    that only point at a column."""
    lines = [
        line for line in traceback.splitlines() if line.strip() and set(line.strip()) - set("^~")
    ]
    starts = [
        (number, match)
        for number, line in enumerate(lines)
        if (match := _FRAME.match(line)) is not None
    ]
    if any(_is_own(match) for _, match in starts):
        of_libraries = {number for number, match in starts if not _is_own(match)}
        of_libraries |= {
            number + 1
            for number in of_libraries
            if number + 1 < len(lines) and _is_code(lines[number + 1])
        }
        lines = [line for number, line in enumerate(lines) if number not in of_libraries]
    return lines[-_EXCERPT_LINES:]


def _is_own(frame: re.Match[str]) -> bool:
    return not any(part in frame["file"] for part in _LIBRARY)


def _is_code(line: str) -> bool:
    """The source line below a frame is indented by four."""
    return line.startswith("    ")
