"""Reads what NCCL's watchdog writes into the logs of ranks, in the forms of torch 2.0 to 2.14: which
collective timed out or failed, and which ones each rank enqueued and completed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchscale.hang.log_files import MAX_RANKS
from torchscale.schema.launch.hang import StackFrame
from torchscale.util.text import one_line

DEFAULT_GROUP = "0"
"""Name of the group that ``init_process_group`` makes."""
UNNAMED_GROUP = "?"
"""In place of the name of another one, where lines have none."""
_OWN = -1
_MAX_GROUPS = 64
"""Groups, and collectives that failed, of one rank."""
_MAX_FRAMES = 100
_MAX_ERROR = 160
_TOKENS = (
    b"atchdog",
    b"WorkNCCL(",
    b"ast enqueued",
    b"process_group() was not called",
    b"failed collective",
)
"""One of these is in each line of interest."""
_RANK = re.compile(r"\[rank(\d{1,7})\]:")
_GROUP = re.compile(
    r"\[(?:PG (?:ID )?(?P<id>\d{1,9})(?: PG GUID (?P<guid>[^\s(\]]{1,80}))?"
    r"(?: ?\((?P<description>[^)]{0,80})\))? )?Rank (?P<rank>\d{1,7})\]"
)
_WORK = re.compile(
    r"Work[A-Z]{0,10}\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w{1,40})"
    r"(?:, NumelIn=(?P<elements>\d{1,18})|, TensorShape=\[(?P<shape>[\d, ]{0,200})\])?"
)
_NUMBER = re.compile(r"SeqNum=(\d{1,18}),")
_RAN = re.compile(r"ran for (\d{1,12}) milliseconds")
_LIMIT = re.compile(r"Timeout\(ms\)=(\d{1,12})\)")
_STATUS = re.compile(
    r"ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,20})"
    r"(?:, last started (?:NCCL )?work: -?\d{1,20}[^,]{0,60})?"
    r", last completed (?:NCCL )?work: (?P<completed>-?\d{1,20})"
)
_AT_WORK = re.compile(
    r"(?:by watchdog at work(?: sequence id)?|Timeout at (?:NCCL )?work): (\d{1,18})"
)
_ERROR = re.compile(r"raised the following async exception: (?P<error>.{1,400})")
_TIME = re.compile(r"\[[A-Z](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d\.\d{1,9})")
_FRAME = re.compile(
    r"#\d{1,4} (?P<function>\S{1,200}) from (?P<file>\S.{0,1000}):(?P<line>\d{1,9})\s*$"
)
_EXIT = "process_group() was not called before program exit"
_STACK = "Stack trace of the failed collective"
_LAST_WORDS = ("terminated with exception", "taking the entire process down")
"""What a watchdog says of a process that it ends."""


@dataclass(frozen=True)
class FailedWork:
    """A collective that timed out, or whose communicator failed.

    Attributes:
        number: Of the collective in its group.
        operation: As NCCL's watchdog calls it: ``ALLREDUCE``.
        elements: Of its input; ``None`` where the line does not say.
        group_rank: Rank within the group; ``None`` where the line does not say.
        limit_ms: Its timeout; ``None`` where it did not time out.
        error: What the communicator said; empty for a timeout.
        called: When it was called, in seconds since the year began; ``None`` where unknown.
    """

    number: int
    operation: str
    elements: int | None
    group_rank: int | None = None
    limit_ms: int | None = None
    error: str = ""
    called: float | None = None


@dataclass
class GroupStatus:
    """What a rank's watchdog says of one process group; a number is ``None`` where it says none."""

    description: str = ""
    group_rank: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    failed: FailedWork | None = None


@dataclass
class RankWatchdog:
    """What the watchdogs of one rank say.

    Attributes:
        groups: By name.
        unplaced: What failed in a group that its line does not name, by number.
        frames: Where the failed collective was called, outermost first.
        failed_at: When the first of its collectives failed, in seconds since the year began.
        exited_at: When its process ended in order without leaving the group.
        is_ended: Whether the watchdog ended its process.
    """

    groups: dict[str, GroupStatus] = field(default_factory=dict)
    unplaced: dict[int, FailedWork] = field(default_factory=dict)
    frames: tuple[StackFrame, ...] = ()
    failed_at: float | None = None
    exited_at: float | None = None
    is_ended: bool = False


def read_watchdogs(lines: Iterable[bytes], file_rank: int | None) -> dict[int, RankWatchdog]:
    """What the watchdogs in one log say, by global rank.

    Args:
        lines: Of the log.
        file_rank: The rank whose log it is, where that is known: lines may say another.
    """
    reader = _Reader(is_of_one=file_rank is not None)
    for line in lines:
        reader.read(line)
    own = reader.ranks.pop(_OWN, None)
    if own is None or reader.ranks or file_rank is None:
        return reader.ranks
    default = own.groups.get(DEFAULT_GROUP)
    if default is not None and default.group_rank is not None:
        return {default.group_rank: own}
    return {file_rank: own}


class _Reader:
    """Reads one log, line by line. Lines that name no rank are of the one whose log it is, under
    ``_OWN``; of several ranks they are told apart by their numbers in the default group."""

    def __init__(self, *, is_of_one: bool) -> None:
        self.ranks: dict[int, RankWatchdog] = {}
        self._is_of_one = is_of_one
        self._in_stack: tuple[RankWatchdog, list[StackFrame]] | None = None

    def read(self, line: bytes) -> None:
        """Note what a line says, if it is one of a watchdog."""
        if self._in_stack is not None and self._reads_frame(line):
            return
        if not any(token in line for token in _TOKENS):
            return
        text = line.decode("utf-8", errors="replace")
        group = _group_in(text)
        rank = self._rank_of(text, group)
        if rank is None or rank >= MAX_RANKS:
            return
        work = _WORK.search(text)
        if work is not None and self._begins_again(rank, int(work["number"])):
            self.ranks.clear()
        watchdog = self.ranks.setdefault(rank, RankWatchdog())
        time = _seconds(text)
        if work is not None:
            _note_failure(watchdog, text, work, group, time)
        if group is not None:
            _note_status(watchdog, text, rank, group)
        if _EXIT in text:
            watchdog.exited_at = time
        if any(words in text for words in _LAST_WORDS):
            watchdog.is_ended = True
        if _STACK in text and "not found" not in text and not watchdog.frames:
            self._in_stack = watchdog, []

    def _rank_of(self, text: str, group: re.Match[str] | None) -> int | None:
        match = _RANK.search(text)
        if match is not None:
            return int(match[1])
        if self._is_of_one:
            return _OWN
        if group is not None and _name(group) in (None, DEFAULT_GROUP):
            return int(group["rank"])
        return None

    def _begins_again(self, rank: int, number: int) -> bool:
        """Whether another collective fails in a rank that its watchdog had ended: the log goes on
        with another attempt of the job."""
        watchdog = self.ranks.get(rank)
        if watchdog is None or not watchdog.is_ended:
            return False
        known = {status.failed.number for status in watchdog.groups.values() if status.failed}
        return number not in known | set(watchdog.unplaced)

    def _reads_frame(self, line: bytes) -> bool:
        """Whether a line belongs to the stack that is being read."""
        if self._in_stack is None:
            return False
        watchdog, frames = self._in_stack
        match = _FRAME.search(line.decode("utf-8", errors="replace"))
        if match is None:
            watchdog.frames = tuple(reversed(frames))
            self._in_stack = None
            return False
        if len(frames) < _MAX_FRAMES:
            frames.append(
                StackFrame(file=match["file"], line=int(match["line"]), function=match["function"])
            )
            watchdog.frames = tuple(reversed(frames))
        return True


def _note_failure(
    watchdog: RankWatchdog,
    text: str,
    work: re.Match[str],
    group: re.Match[str] | None,
    time: float | None,
) -> None:
    """Keep what failed, until a line says in which group; what is said again adds nothing."""
    number, error = int(work["number"]), _ERROR.search(text)
    limit, ran = _LIMIT.search(text), _RAN.search(text)
    known = {status.failed.number for status in watchdog.groups.values() if status.failed}
    if number in known or number in watchdog.unplaced or len(watchdog.unplaced) >= _MAX_GROUPS:
        return
    called = None
    if time is not None and ran is not None:
        called = time - int(ran[1]) / 1000
    if watchdog.failed_at is None:
        watchdog.failed_at = time
    watchdog.unplaced[number] = FailedWork(
        number,
        work["operation"],
        _elements(work),
        None if group is None else int(group["rank"]),
        None if error is not None or limit is None else int(limit[1]),
        "" if error is None else one_line(error["error"].strip())[:_MAX_ERROR],
        called,
    )


def _note_status(watchdog: RankWatchdog, text: str, rank: int, group: re.Match[str]) -> None:
    """Keep what was enqueued and completed in a group when its watchdog first said so, and which
    collective failed there."""
    status, at_work = _STATUS.search(text), _AT_WORK.search(text)
    name, group_rank = _name(group), int(group["rank"])
    if name is None and status is None:
        return
    if name is None:
        name = DEFAULT_GROUP if rank in (_OWN, group_rank) else UNNAMED_GROUP
    if name not in watchdog.groups and len(watchdog.groups) >= _MAX_GROUPS:
        return
    known = watchdog.groups.setdefault(name, GroupStatus())
    known.description = known.description or one_line(group["description"] or "")
    known.group_rank = group_rank
    if status is not None and known.enqueued is None:
        known.enqueued = int(status["enqueued"])
        completed = int(status["completed"])
        if completed <= known.enqueued:  # some versions print what was never set
            known.completed = completed
    work = at_work or _NUMBER.search(text)
    if work is not None and known.failed is None:
        known.failed = watchdog.unplaced.pop(int(work[1]), None)


def _name(group: re.Match[str]) -> str | None:
    """The name of a group; ``None`` where the line does not say."""
    name: str | None = group["guid"] or group["id"]
    return name


def _elements(work: re.Match[str]) -> int | None:
    if work["elements"] is not None:
        return int(work["elements"])
    if work["shape"] is None:
        return None
    product = 1
    for size in re.findall(r"\d{1,18}", work["shape"]):
        product *= int(size)
    return product


def _seconds(text: str) -> float | None:
    """Time of a line, in seconds since the year began if all months had 31 days."""
    match = _TIME.search(text)
    if match is None:
        return None
    month, day, hours, minutes = (int(match[index]) for index in range(1, 5))
    return (((month * 31 + day) * 24 + hours) * 60 + minutes) * 60 + float(match[5])


def _group_in(text: str) -> re.Match[str] | None:
    """The group and the rank in it that a line names: the first that has a name, else the first."""
    matches = list(_GROUP.finditer(text))
    named = [match for match in matches if match["id"] is not None]
    return next(iter([*named, *matches]), None)
