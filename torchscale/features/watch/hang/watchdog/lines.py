"""Reads what NCCL's watchdog writes into the logs of ranks, in the forms of torch 2.0 to 2.13: which
collective timed out or failed, and which ones each rank enqueued and completed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchscale.features.watch.hang.log_files import MAX_RANKS
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED_GROUP,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)
from torchscale.schema.launch.hang import StackFrame
from torchscale.util.text import one_line

_MAX_GROUPS = 64
"""Groups, and collectives that failed, of one rank."""
_MAX_FRAMES = 100
_MAX_ERROR = 160
_TOKENS = (
    b"atchdog",
    b"WorkNCCL(",
    b"ast enqueued",
    b"dump signal",
    b"process_group() was not called",
    b"failed collective",
)
"""One of these is in each line of interest."""
_COLOUR = re.compile(rb"\x1b\[[\d;]{0,40}m")
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
    r"(?:, last started (?:NCCL )?work: (?P<started>-?\d{1,20})[^,]{0,60})?"
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
class SaidInLog:
    """What the watchdogs in one log say.

    Attributes:
        ranks: Of the global ranks that lines name.
        own: What lines without a global rank say of the rank whose log it is, by the rank in a
            group that they name.
    """

    ranks: dict[int, RankWatchdog]
    own: dict[int, RankWatchdog]


def read_log(lines: Iterable[bytes], *, is_of_one: bool) -> SaidInLog:
    """What the watchdogs in one log say; it ``is_of_one`` where its name has a rank."""
    reader = _Reader(is_of_one=is_of_one)
    for line in lines:
        reader.read(line)
    return SaidInLog(reader.ranks, reader.own)


class _Reader:
    """Reads one log, line by line; its attributes are those of :class:`SaidInLog`."""

    def __init__(self, *, is_of_one: bool) -> None:
        self.ranks: dict[int, RankWatchdog] = {}
        self.own: dict[int, RankWatchdog] = {}
        self._is_of_one = is_of_one
        self._in_stack: tuple[RankWatchdog, list[StackFrame]] | None = None

    def read(self, line: bytes) -> None:
        """Note what a line says, if it is one of a watchdog."""
        if b"\x1b" in line:
            line = _COLOUR.sub(b"", line)
        if self._in_stack is not None and self._reads_frame(line, *self._in_stack):
            return
        if not any(token in line for token in _TOKENS):
            return
        text = line.decode("utf-8", errors="replace")
        group = _group_in(text)
        work = _WORK.search(text)
        watchdog = self._watchdog_of(text, group)
        if watchdog is None:
            return
        if work is not None and _begins_again(watchdog, int(work["number"])):
            self.ranks.clear()
            self.own.clear()
            watchdog = self._watchdog_of(text, group) or watchdog
        time = _seconds(text)
        if work is not None:
            _note_failure(watchdog, text, work, group, time)
        if group is not None:
            _note_status(watchdog, text, group)
        if _EXIT in text:
            watchdog.exited_at = time
        if any(words in text for words in _LAST_WORDS):
            watchdog.is_ended = True
        if _STACK in text and "not found" not in text and not watchdog.frames:
            self._in_stack = watchdog, []

    def _watchdog_of(self, text: str, group: re.Match[str] | None) -> RankWatchdog | None:
        """The rank that a line is of; ``None`` where that is not known."""
        match = _RANK.search(text)
        place = None if group is None else int(group["rank"])
        known, rank = self.ranks, place
        if match is not None:
            rank = int(match[1])
        elif self._is_of_one:
            known, rank = self.own, place
        elif group is not None and _name(group) not in (None, DEFAULT_GROUP):
            rank = None
        if rank is None or rank >= MAX_RANKS:
            return None
        return known.setdefault(rank, RankWatchdog(rank if known is self.ranks else None))

    def _reads_frame(self, line: bytes, watchdog: RankWatchdog, frames: list[StackFrame]) -> bool:
        """Whether a line belongs to the stack that is being read."""
        match = _FRAME.search(line.decode("utf-8", errors="replace"))
        if match is None:
            self._in_stack = None
            return False
        if len(frames) < _MAX_FRAMES:
            frames.append(
                StackFrame(file=match["file"], line=int(match["line"]), function=match["function"])
            )
            watchdog.frames = tuple(reversed(frames))
        return True


def _begins_again(watchdog: RankWatchdog, number: int) -> bool:
    """Whether another collective fails in a rank that its watchdog had ended: the log goes on with
    another attempt of the job."""
    known = {status.failed.number for status in watchdog.groups.values() if status.failed}
    return watchdog.is_ended and number not in known | set(watchdog.unplaced)


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


def _note_status(watchdog: RankWatchdog, text: str, group: re.Match[str]) -> None:
    """Keep what was enqueued and completed in a group, and which collective failed there: what is
    said when that fails counts."""
    status, at_work = _STATUS.search(text), _AT_WORK.search(text)
    name, group_rank = _name(group), int(group["rank"])
    if name is None and status is None:
        return
    is_assumed = name is None
    if name is None:
        name = DEFAULT_GROUP if watchdog.rank == group_rank else UNNAMED_GROUP
    if name not in watchdog.groups and len(watchdog.groups) >= _MAX_GROUPS:
        return
    known = watchdog.groups.setdefault(name, GroupStatus(is_assumed=is_assumed))
    known.description = known.description or one_line(group["description"] or "")
    known.group_rank = group_rank
    match = at_work or _NUMBER.search(text)
    number = None if match is None else int(match[1])
    if status is not None:
        _note_counts(known, status, number)
    if number is not None and known.failed is None:
        known.failed = watchdog.unplaced.pop(number, None)


def _note_counts(known: GroupStatus, status: re.Match[str], number: int | None) -> None:
    """Keep what was enqueued and completed when a collective failed; ``number`` is the one that a
    line names. Where that which failed has completed since, an earlier one fails, or fewer are
    enqueued, the log goes on with another attempt of the job."""
    enqueued, told = int(status["enqueued"]), int(status["completed"])
    completed = told if told <= enqueued else None  # some versions print what was never set
    failed = known.failed
    if failed is not None and number != failed.number:
        is_earlier = number is not None and number < failed.number
        is_earlier = is_earlier or enqueued < failed.number
        if is_earlier or (completed or 0) >= failed.number:
            known.failed = None
    if known.failed is None:
        known.enqueued, known.completed = enqueued, completed
        known.started = int(status["started"] or -1)


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
