"""A recording that cannot be analyzed becomes a small file that can be sent: the part of it that still
fails in the same way, without private text."""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, cast

from torchscale.config.choices import WindowChoice
from torchscale.errors import OutputError, TraceError, UsageError
from torchscale.features.trace.analyze import RecordingParts
from torchscale.features.trace.problem.description import SQLITE, kind_of, without_content
from torchscale.features.trace.problem.failing import Failing, PartTrial, find_failing
from torchscale.features.trace.problem.neutral import NotNeutralError, categories, neutralize
from torchscale.features.trace.problem.pieces import Pieces, split
from torchscale.features.trace.problem.reduction import (
    PieceTrials,
    Reduced,
    SpentError,
    reduce_pieces,
)
from torchscale.features.trace.readers.files import ARCHIVE_SUFFIXES, JSON_SUFFIXES, REPORT_SUFFIX
from torchscale.features.trace.readers.recordings import find_recordings
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import run_by_name
from torchscale.util.files import atomic_write_bytes
from torchscale.util.scratch import scratch_directory
from torchscale.util.words import plural
from torchscale.version import __version__

SUFFIX = ".json"
_SECONDS, _TRIES = 40.0, 20_000
"""For what can be left out: who waits for a command gives it about a minute, with the analysis before
and the names after."""
_NAME_SECONDS, _NAME_TRIES = 20.0, 5000
"""For names: of the few events that are left, a try takes milliseconds."""
_LOOK_SECONDS = 30.0
"""For finding the window that fails: some two gigabytes."""
_WINDOW_BYTES = 128 << 20
"""Of the text of a recording, unpacked. A try of so much takes two seconds, and five times the
memory."""
_MAX_CARRIED = _WINDOW_BYTES // 2
"""Bytes of text without an end of an event that go into the next window: more is damage."""
_UNREADABLE = (OSError, EOFError, zlib.error)
_PEEK_BYTES = 64


@dataclass(frozen=True)
class ProblemReport:
    """What was written.

    Attributes:
        path: The file.
        error: How the recording fails.
        size_bytes: Of the file.
        events: Number of events in it; ``None`` for a description alone.
        of_events: Number of events of the recording that were looked at.
        reached: How small it is; ``None`` for a description alone.
        reason: Why it is a description alone.
    """

    path: Path
    error: str
    size_bytes: int
    events: int | None = None
    of_events: int = 0
    reached: Reduced | None = None
    reason: str = ""

    @property
    def note(self) -> str:
        """What is to be said of its size; empty for nothing."""
        if self.reached is Reduced.UNFINISHED:
            return "There was no time to make it smaller"
        if self.reached is Reduced.KINDS:
            return "It fails by what is missing: one event of each kind is in it, with its category"
        return ""

    def as_json(self) -> str:
        """The report for other programs."""
        reached = None if self.reached is None else self.reached.value
        return json.dumps({**asdict(self), "path": str(self.path), "reached": reached}, indent=1)


def report_problem(
    paths: Sequence[Path],
    output: Path,
    *,
    window: WindowChoice = WindowChoice.AUTO,
    parts: RecordingParts | None = None,
    observer: Observer = SILENT,
) -> ProblemReport:
    """Write the smallest part of a failing recording that still fails in the same way, or where there
    is none that can be shown, a description of the file.

    Args:
        paths: Recordings, as of ``analyze_recordings``.
        output: A ``.json`` file that does not exist.
        window, parts: What is analyzed.
        observer: Shows messages.

    Raises:
        UsageError: ``output`` cannot be such a file, or the recordings fail together alone.
        TraceError: it is a recording of nsys, or of several in an archive.
        TorchscaleError: nothing fails.
        OutputError: ``output`` cannot be written.
    """
    _check_output(output)
    with observer.status("Looking for the recording that fails") as say:
        recordings = find_recordings([run_by_name(path) for path in paths])
        for path in recordings:
            _check_kind(path)
        failing = find_failing(recordings, window, parts)
        with scratch_directory("problem") as scratch:
            # Under its final name, since a rank may be read from a name.
            trial = PartTrial(failing, scratch / output.name)
            return _report(trial, output, say)


def _check_output(output: Path) -> None:
    if output.suffix != SUFFIX:
        raise UsageError(
            f"--report-problem {output}: expected a name that ends in {SUFFIX}",
            hint="the part that fails is written as JSON",
        )
    if os.path.lexists(output):
        raise UsageError(
            f"--report-problem {output}: it exists already", hint="name a file that does not"
        )
    if not output.absolute().parent.is_dir():
        raise OutputError(
            f"cannot write {output}: no such directory", hint="make it, or choose another"
        )


def _check_kind(path: Path) -> None:
    """Refuse what is no single trace of torch.profiler.

    Raises:
        TraceError: it is not.
    """
    if path.name.endswith(ARCHIVE_SUFFIXES):
        raise TraceError(
            f"{path}: of an archive no part can be reported", hint="unpack it and name the file"
        )
    if path.suffix == REPORT_SUFFIX or kind_of(_beginning(path)) == SQLITE:
        raise TraceError(
            f"{path}: of a recording of nsys no part can be reported",
            hint="send a copy of the export without environment and arguments: torchscale profile "
            "strip FILE.sqlite --output COPY.sqlite; if that fails too, its tables: sqlite3 "
            "FILE.sqlite .schema",
        )


def _opened(path: Path) -> IO[bytes]:
    """The text of a recording, unpacked."""
    if path.name.endswith(".gz"):
        return cast(IO[bytes], gzip.open(path))
    return path.open("rb")


def _beginning(path: Path) -> bytes:
    """The first bytes of a recording, unpacked; empty where they cannot be read."""
    try:
        with _opened(path) as file:
            return file.read(_PEEK_BYTES)
    except _UNREADABLE:
        return b""


def _windows(path: Path) -> Iterator[Pieces]:
    """The recording in windows of bounded size, with the header of the first. An event that a window
    cuts off is in the next."""
    with _opened(path) as file:
        text = file.read(_WINDOW_BYTES)
        first = pieces = split(text)
        while first is not None and pieces is not None:
            more = file.read(_WINDOW_BYTES)
            is_last = not more or bool(pieces.after) or not pieces.events
            if is_last or len(pieces.events[-1]) > _MAX_CARRIED:
                yield pieces
                return
            yield replace(pieces, events=pieces.events[:-1], after=b"]}")
            pieces = split(b"[" + pieces.events[-1] + more)
            if pieces is not None:
                pieces = replace(pieces, before=first.before)


def _report(trial: PartTrial, output: Path, say: Callable[[str], None]) -> ProblemReport:
    """Reduce the recording, neutralize what is left, and write it; or describe it."""
    say("Reading the recording")
    try:
        found, count = _failing_window(trial)
    except _UNREADABLE:
        return _describe(trial.failing, output, "it cannot be read or unpacked")
    if found is None:
        reason = "no list of events begins in it"
        if count is not None:
            reason = (
                f"no part of it fails so as {output.name}; where the rank is in the file's name, give "
                f"it to this one: rank3-problem{SUFFIX}"
            )
        return _describe(trial.failing, output, reason)
    say(f"Reducing {plural(len(found.events), 'event')}")
    search = PieceTrials(found, trial.fails, seconds=_SECONDS, tries=_TRIES)
    reached = reduce_pieces(search)
    say(f"Replacing names in {plural(len(search.best.events), 'event')}")
    names = PieceTrials(search.best, trial.fails, seconds=_NAME_SECONDS, tries=_NAME_TRIES)
    try:
        neutralize(names, _public(names.best, reached))
    except NotNeutralError:
        return _describe(trial.failing, output, "it fails by text that may be private")
    except SpentError:
        return _describe(trial.failing, output, "there was no time to replace all names")
    text = names.best.text() + b"\n"
    atomic_write_bytes(output, text)
    return ProblemReport(
        path=output,
        error=trial.failing.message,
        size_bytes=len(text),
        events=len(names.best.events),
        of_events=count or 0,
        reached=reached,
    )


def _failing_window(trial: PartTrial) -> tuple[Pieces | None, int | None]:
    """The first window that fails, and how many events were looked at; ``None`` for no list of
    events."""
    count = None
    end = time.monotonic() + _LOOK_SECONDS
    for pieces in _windows(trial.failing.path):
        count = (count or 0) + len(pieces.events)
        if trial.fails(pieces.text()):
            return pieces, count
        if time.monotonic() > end:
            break
    return None, count


def _public(pieces: Pieces, reached: Reduced) -> frozenset[str]:
    """Texts that say why it fails, where it fails by what is missing."""
    if reached is Reduced.KINDS:
        return categories(pieces)
    return frozenset()


def _describe(failing: Failing, output: Path, reason: str) -> ProblemReport:
    """Write what is known of a file without anything of what it holds."""
    path = failing.path
    suffix = next((one for one in JSON_SUFFIXES if path.name.endswith(one)), "another")
    description = {
        "problem": "torchscale profile analyze fails; nothing of the file is in here",
        "because": reason,
        "error": without_content(failing.message, path),
        "torchscale": __version__,
        "suffix": suffix,
        "bytes": path.stat().st_size,
        "text_begins_as": kind_of(_beginning(path)),
    }
    data = f"{json.dumps(description, indent=1)}\n".encode()
    atomic_write_bytes(output, data)
    return ProblemReport(output, failing.message, len(data), reason=reason)
