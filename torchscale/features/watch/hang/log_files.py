"""The logs of a job's ranks in a directory, read line by line with bounds: torchrun's folders, or
files beside each other."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.util.files import open_regular
from torchscale.util.processes.subprocesses import tail
from torchscale.util.redaction import hide_secrets
from torchscale.util.text import one_line

MAX_FILES = 20_000
"""Names that are looked at: a job of some thousand ranks leaves one or two files a rank."""
MAX_RANKS = 65_536
"""A damaged file may name any number, and each rank takes memory."""
_MAX_FILE_BYTES = 32 << 20
"""End of a log that is read: a watchdog speaks when its process is about to end."""
_MAX_TOTAL_BYTES = 1 << 30
"""Of all logs together: some seconds."""
_MAX_LINE_BYTES = 64 << 10
_MAX_SHOWN = 4096
"""Bytes of a line that are looked at; its beginning has the rank and the message."""
_END_BYTES = 8192
_LAST_LINES = 4
"""Lines that may follow an exception: warnings of a process that ends."""
_MAX_ERROR = 160
_EXCEPTION = re.compile(
    r"(?:\[[\w: ]{1,40}\]:\s?)*((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]?\w{0,60}?(?:Error|Exception|"
    r"Interrupt|SystemExit)(?::.*)?)$"
)
_ATTEMPT = re.compile(r"attempt_(\d{1,6})")
_SUFFIX = r"\.(?:log|err|out|txt|stderr|stdout)"
_LOG = re.compile(rf"(?i){_SUFFIX}(?:[._-]?\d{{1,6}})?$|(?:^|[._-])(?:log|out|err)[._-]?\d{{1,6}}$")
"""``rank_0.log``, ``job.err.3``, ``out-3``."""
_FOLDER = re.compile(r"(?i)(?:(?:rank|worker|task)[-_.]?)?(?P<rank>\d{1,6})")
_NAMED_RANK = re.compile(r"(?i)(?:rank|worker|task|proc|process)[-_.]?(?P<rank>\d{1,6})(?!\d)")
_LAST_NUMBER = re.compile(rf"(?i)(?P<rank>\d{{1,6}})(?P<rest>(?:{_SUFFIX})*)$")
"""The number that a name ends in, which may be one of a rank, of a job or of a node."""


@dataclass(frozen=True)
class RankLog:
    """A log, and the rank that its name or its folder says; ``None`` where that says none. In
    torchrun's folders it is the rank on its machine. It ``is_sure`` where the name has a word for
    that."""

    path: Path
    rank: int | None = None
    is_sure: bool = True


class LogLines:
    """Lines of ``count`` logs, within a bound on all of them together, of which each has its share.

    Attributes:
        cut: Names of files of which only the end was read.
    """

    def __init__(self, count: int) -> None:
        self.cut: list[str] = []
        self._limit = min(_MAX_FILE_BYTES, _MAX_TOTAL_BYTES // max(1, count))

    def of(self, path: Path) -> Iterator[bytes]:
        """The lines of a file, from the last part of it; each cut to ``_MAX_SHOWN`` bytes. None of
        what cannot be read."""
        try:
            descriptor = open_regular(path)
        except OSError:
            return
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > self._limit:
                self.cut.append(path.name)
                file.seek(size - self._limit)
            left = min(size, self._limit)
            is_start = True
            while left > 0:
                line = file.readline(min(_MAX_LINE_BYTES, left))
                if not line:
                    return
                left -= len(line)
                if is_start:
                    yield line[:_MAX_SHOWN]
                is_start = line.endswith(b"\n")


def find_logs(directory: Path) -> list[list[RankLog]]:
    """The logs of each run below ``directory``, newest run first: of torchrun's folders the latest
    attempt of each run, and all files beside each other as one run. What cannot be read is left
    out."""
    runs: dict[Path, tuple[int, Path]] = {}
    for attempt in _attempts(directory):
        match = _ATTEMPT.fullmatch(attempt.name)
        if match is not None and _entries(attempt):
            this = int(match[1]), attempt
            runs[attempt.parent] = max(runs.get(attempt.parent, this), this)
    found = [_of_folders(attempt, is_attempt=True) for _, attempt in runs.values()]
    if directory.absolute() not in {attempt for _, attempt in runs.values()}:
        found.append(_of_folders(directory, is_attempt=False))
    found.append(_flat(directory))
    return sorted((logs for logs in found if logs), key=_newest, reverse=True)


def _attempts(directory: Path) -> Iterator[Path]:
    """Paths that may be the folder of an attempt: ``directory`` or up to three levels below it."""
    patterns = ("attempt_*", "*/attempt_*", "*/*/attempt_*")
    below = itertools.chain.from_iterable(map(directory.absolute().glob, patterns))
    return itertools.islice(itertools.chain([directory.absolute()], below), MAX_FILES)


def _of_folders(directory: Path, *, is_attempt: bool) -> list[RankLog]:
    """The logs in folders that are named after ranks: ``3/stderr.log``, ``rank_3/out.txt``. Numbers
    alone are surely ranks in the folder of an attempt."""
    folders = sorted(
        (int(match["rank"]), path)
        for path in _entries(directory)
        if (match := _FOLDER.fullmatch(path.name)) is not None and int(match["rank"]) < MAX_RANKS
    )
    if not is_attempt and not _may_be_ranks(
        [rank for rank, path in folders if path.name.isdigit()]
    ):
        folders = [(rank, path) for rank, path in folders if not path.name.isdigit()]
    return [
        RankLog(path, rank)
        for rank, folder in folders
        for path in sorted(_entries(folder))
        if _LOG.search(path.name) and _is_file(path)
    ]


def _flat(directory: Path) -> list[RankLog]:
    """Logs that lie in ``directory`` itself."""
    paths = sorted(
        path for path in _entries(directory) if _LOG.search(path.name) and _is_file(path)
    )
    numbered = _numbered(paths)
    return [
        RankLog(path, _named_rank(path.name, numbered), _NAMED_RANK.search(path.name) is not None)
        for path in paths
    ]


def _entries(directory: Path) -> list[Path]:
    """What lies in a directory; nothing of one that cannot be read."""
    try:
        return list(itertools.islice(directory.iterdir(), MAX_FILES))
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _named_rank(name: str, numbered: set[str]) -> int | None:
    match = _NAMED_RANK.search(name)
    if match is None and name in numbered:
        match = _LAST_NUMBER.search(name)
    if match is None or int(match["rank"]) >= MAX_RANKS:
        return None
    return int(match["rank"])


def _numbered(paths: Sequence[Path]) -> set[str]:
    """Names that differ in their last number alone, where these may be ranks: they begin with 0, and
    few are missing."""
    series: dict[tuple[str, str], dict[int, str]] = {}
    for path in paths:
        match = _LAST_NUMBER.search(path.name)
        if match is not None:
            key = path.name[: match.start()], match["rest"]
            series.setdefault(key, {})[int(match["rank"])] = path.name
    return {
        name
        for names in series.values()
        if len(names) > 1 and _may_be_ranks(names)
        for name in names.values()
    }


def _may_be_ranks(numbers: Collection[int]) -> bool:
    """Whether numbers begin with 0, and few are missing."""
    return 0 in numbers and max(numbers) < 2 * len(numbers)


def last_error(logs: Iterable[Path]) -> str:
    """The exception with which one of the logs of a rank ends; empty for none."""
    for log in logs:
        lines = [line for line in tail(log, _END_BYTES).splitlines() if line.strip()]
        for line in reversed(lines[-_LAST_LINES:]):
            match = _EXCEPTION.match(line)
            if match is not None:
                return one_line(hide_secrets(match[1].strip()))[:_MAX_ERROR]
    return ""


def _newest(logs: Sequence[RankLog]) -> float:
    """When the latest of some logs was written."""
    times = []
    for log in logs:
        try:
            times.append(log.path.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
