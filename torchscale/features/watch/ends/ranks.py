"""How each rank of an attempt ended: from what it left itself, and from what its launcher saw."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchscale.catalog.failure_signs import OUT_OF_MEMORY, PEER_LOST, says_any
from torchscale.features.watch.hang.stacks import own_place
from torchscale.schema.launch.hang import StackFrame
from torchscale.schema.watch.ends import ProcessEnd
from torchscale.schema.watch.rank import RankFacts
from torchscale.util.redaction import redact_text
from torchscale.util.text import one_line

_LAUNCHERS = ("torch.distributed.elastic.", "torch.multiprocessing.spawn.")
"""Modules of launchers."""
_OF_OTHERS = (".ChildFailedError", ".SignalException")
"""Exceptions of theirs that tell of the end of other processes."""
_GONE = (
    "BrokenPipeError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "EOFError",
    "FileNotFoundError",
)
"""What Python raises where the process at the other end is gone."""
_RECEIVED = re.compile(r"got signal: (\d{1,3})")
_IN_WORKER = re.compile(
    r"^Caught (?P<type>[\w.]+) in (?P<worker>DataLoader worker process \d+|replica \d+[^.\n]*)\."
)
_TRACE_LINE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>\S+)')
_FIRST_LINE = 300
"""Characters of a message that stand in a sentence."""
_TOGETHER_SECONDS = 1.0
"""Who follows looks several times a second: what it finds within one has no order."""
_LATE_KILL_SECONDS = 20.0
"""torchrun kills what has not ended 30 s after it asked (``SubprocessContext.close``)."""


@dataclass(frozen=True)
class RankEnd:
    """The end of a process that is a rank, or the program itself.

    Attributes:
        rank: ``None`` for a program without ranks, and where not known.
        host, pid: Of the process.
        time: When it was noticed, in seconds since the epoch.
        is_exact: Whether the process itself noted the time; a launcher sees it a little later.
        exit_code: The negative number of a signal; ``None`` where not known.
        error, text: Of its exception; empty without one.
        frames: Of its stack, outermost first.
        where: What of the rank raised, as ``DataLoader worker process 0``; empty for itself.
        is_gone: Whether somebody saw that the process was there no more, and nothing else is known.
    """

    rank: int | None
    host: str
    pid: int
    time: float
    is_exact: bool = False
    exit_code: int | None = None
    error: str = ""
    text: str = ""
    frames: tuple[StackFrame, ...] = ()
    where: str = ""
    is_gone: bool = False

    @property
    def is_launcher(self) -> bool:
        """Whether it is torchrun, which failed by itself."""
        return self.rank is None and self.error.startswith(_LAUNCHERS)

    @property
    def signal(self) -> str:
        """``SIGKILL``; empty without one."""
        if self.exit_code is None or self.exit_code >= 0:
            return ""
        return signal_name(-self.exit_code)

    @property
    def is_lost_peer(self) -> bool:
        """Whether its exception says that another rank was gone."""
        is_of_torch = self.error in ("RuntimeError", "ConnectionError") or self.error.startswith(
            "torch.distributed."
        )
        return is_of_torch and says_any(self.text, PEER_LOST)

    @property
    def has_lost_worker(self) -> bool:
        """Whether a worker of its loader was gone as it handed over a batch. Torch names the worker
        only where it has seen its end by then."""
        return self.error in _GONE and any(
            frame.function == "_try_get_data" and "/torch/utils/data/" in frame.file
            for frame in self.frames
        )

    @property
    def is_out_of_memory(self) -> bool:
        """Whether an allocation failed."""
        name = self.error.rpartition(".")[2]
        return name in ("MemoryError", "OutOfMemoryError") or (
            name == "RuntimeError" and says_any(self.text, OUT_OF_MEMORY)
        )

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.error == "KeyboardInterrupt" or self.exit_code == -signal.SIGINT

    @property
    def place(self) -> str:
        """``train.py:88 (load_batch)``; empty where not known."""
        return one_line(own_place(self.frames))

    @property
    def message(self) -> str:
        """Of its exception, without secrets."""
        return redact_text(self.text).strip()

    @property
    def first_line(self) -> str:
        """Of its exception: ``RuntimeError: bad record``."""
        said = next((line for line in self.message.splitlines() if line.strip()), "")
        said = one_line(said.strip())
        if len(said) > _FIRST_LINE:
            said = f"{said[: _FIRST_LINE - 1]}…"
        return f"{self.error}: {said}" if said else self.error


def signal_name(number: int) -> str:
    """``SIGKILL``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def rank_ends(ends: Iterable[ProcessEnd], ranks: Mapping[int, RankFacts]) -> list[RankEnd]:
    """One for each process that may be a rank, in the order of time.

    Args:
        ends: Of one attempt.
        ranks: What the ranks say of themselves that have reported.
    """
    known = {(facts.host, facts.pid): rank for rank, facts in ranks.items()}
    found: dict[tuple[str, int], RankEnd] = {}
    for end in ends:
        if end.of_rank is not None:
            continue
        for one in _ends_in(end):
            key = (one.host, one.pid)
            rank = known.get(key, one.rank)
            named = replace(one, rank=rank)
            found[key] = _merged(found[key], named) if key in found else named
    return sorted(found.values(), key=lambda one: one.time)


def received_signal(ends: Iterable[ProcessEnd]) -> str:
    """The signal that torchrun got, for which it ended its ranks; empty without one."""
    for end in ends:
        match = _RECEIVED.search(end.text) if end.type.endswith(".SignalException") else None
        if match is not None:
            return signal_name(int(match[1]))
    return ""


def _ends_in(end: ProcessEnd) -> list[RankEnd]:
    """Of the process that left it; what a launcher raises is of the process that it tells of."""
    if end.child is not None:
        code = 1 if end.child.exit_code is None else end.child.exit_code
        rank = end.child.index if end.rank is None else None
        return [RankEnd(rank, end.host, end.child.pid, end.time, exit_code=code)]
    if end.type.startswith(_LAUNCHERS) and end.type.endswith(_OF_OTHERS):
        return []
    frames = tuple(
        StackFrame(file=file, line=line, function=function) for file, line, function in end.frames
    )
    one = RankEnd(end.rank, end.host, end.pid, end.time, end.kind == "raised", end.exit_code)
    if end.kind == "raised":
        one = replace(one, error=end.type, text=end.text, frames=frames)
        return [_of_worker(one)]
    return [replace(one, frames=frames, is_gone=end.kind == "gone")]


def _of_worker(one: RankEnd) -> RankEnd:
    """An exception that torch has carried over from a worker: its own text and lines."""
    match = _IN_WORKER.match(one.text)
    if match is None:
        return one
    frames = tuple(
        StackFrame(file=line["file"], line=int(line["line"]), function=line["function"])
        for line in _TRACE_LINE.finditer(one.text)
    )
    last = one.text.rstrip().rpartition("\n")[2]
    _, separator, said = last.partition(": ")
    return replace(
        one,
        error=match["type"],
        text=said if separator else "",
        frames=frames or one.frames,
        where=match["worker"],
    )


def _merged(first: RankEnd, other: RankEnd) -> RankEnd:
    """What two say of one process: its exception, its exit code, and the earlier time."""
    raised = other if other.error else first
    exact = first if first.is_exact else other
    return replace(
        raised,
        rank=first.rank if first.rank is not None else other.rank,
        time=exact.time if exact.is_exact else min(first.time, other.time),
        is_exact=first.is_exact or other.is_exact,
        exit_code=first.exit_code if first.exit_code is not None else other.exit_code,
        frames=raised.frames or first.frames or other.frames,
        is_gone=first.is_gone and other.is_gone,
    )


def consequences(ends: Sequence[RankEnd], first: RankEnd) -> list[RankEnd]:
    """Ends that follow from the first one: they lost a peer, or the launcher ended them."""
    return [one for one in ends if one is not first and is_consequence(one, ends)]


def is_consequence(one: RankEnd, ends: Sequence[RankEnd]) -> bool:
    """Whether another rank's end, or somebody who ends all, explains it."""
    if one.is_lost_peer or one.is_interrupted:
        return True
    if one.error:
        return False
    if one.exit_code == -signal.SIGTERM:
        return True
    if one.is_gone:  # what starts ranks anew ends the others by SIGKILL
        causes = [other for other in ends if other is not one and not other.is_lost_peer]
        return any(other.time < one.time for other in causes)
    earlier = min((other.time for other in ends if other is not one), default=one.time)
    return one.exit_code == -signal.SIGKILL and one.time - earlier > _LATE_KILL_SECONDS


def alike(first: RankEnd, ends: Sequence[RankEnd]) -> list[RankEnd]:
    """The ends of ranks, ``first`` among them, that raised the same, or were gone at about the same
    time: which of these was the first is not known."""

    def is_alike(end: RankEnd) -> bool:
        if first.is_gone:
            together = abs(end.time - first.time) < _TOGETHER_SECONDS
            return end.is_gone and together and not (end.is_exact or first.is_exact)
        return bool(first.error) and (end.error, end.text) == (first.error, first.text)

    return [end for end in ends if end.rank is not None and (end is first or is_alike(end))]
