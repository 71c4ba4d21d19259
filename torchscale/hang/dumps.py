"""The dumps in a directory, of any job: torchscale's own, or the files that torch's flight recorder
writes."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import TraceError, UsageError
from torchscale.hang.evidence import LOG_BYTES, condition_of, log_of, read_facts
from torchscale.hang.flight_recorder import MAX_DUMP_BYTES, read_flight_recorder
from torchscale.hang.job import RankEvidence
from torchscale.hang.stacks import last_stack
from torchscale.schema.launch.collective_log import CollectiveLog
from torchscale.schema.launch.hang import HangFacts, RankDump, RankProcess, StackFrame
from torchscale.util.files import read_bounded
from torchscale.util.processes.subprocesses import tail

_MAX_FILES = 20_000
"""Names that are looked at: a job of some thousand ranks leaves one or two files a rank."""
_MAX_DUMPS = 4096
_MAX_RANKS = 65_536
"""A damaged dump may claim any number, and each rank takes memory."""
_NAME = re.compile(r"(?:^|\D)(?P<rank>\d{1,6})(?:\.(?:json|pkl|pickle))?$")
"""``nccl_trace_rank_3``, ``autopsy-rank-3.json``, ``dump3.pickle``: torch appends the rank to a
prefix."""
_OTHER_FILES = re.compile(r"\.(?:log|jsonl)$|^(?:rank|error-rank|steps-rank)-\d+\.")
"""Names of files of a launch directory, and no dumps."""


@dataclass(frozen=True)
class _Dump:
    """What one rank left: its log or why there is none, its stack, and torchscale's own form of
    it."""

    log: CollectiveLog | None
    problem: str
    frames: tuple[StackFrame, ...]
    answer: RankDump | None

    @property
    def world(self) -> tuple[int, ...]:
        """Ranks of the default group; none where the log does not say."""
        if self.log is None:
            return ()
        groups = self.log.groups.values()
        return tuple(
            rank for group in groups if group.description == "default_pg" for rank in group.ranks
        )


def read_directory(directory: Path) -> tuple[list[RankEvidence], HangFacts]:
    """What the ranks of a job left in ``directory``, and what the launcher saw, where torchscale
    launched it.

    Raises:
        UsageError: there is no such directory, it cannot be read, or no file in it is a dump.
    """
    facts = read_facts(directory)
    dumps: dict[int, _Dump] = {}
    problems: dict[int, str] = {}
    for rank, path in _candidates(directory):
        try:
            dumps[rank] = _read(path)
        except TraceError as error:
            problems[rank] = f"{path.name}: {error.message}"
        if len(dumps) >= _MAX_DUMPS:
            break
    states = {state.rank: state for state in facts.processes}
    if not dumps and not states:
        first = ""
        if problems:
            first = f"; {next(iter(problems.values()))}"
        raise UsageError(
            f"{directory} holds no dump of torch's flight recorder{first}",
            hint="set TORCH_FR_DUMP_TEMP_FILE (TORCH_NCCL_DEBUG_INFO_TEMP_FILE in older versions) "
            "to a path in it, or pass the launch directory of a cell that hung",
        )
    named = [rank for dump in dumps.values() for rank in dump.world]
    size = 1 + max([*named, *dumps, *states])
    if size > _MAX_RANKS:
        raise UsageError(
            f"{directory}: a dump claims {size:,} ranks; at most {_MAX_RANKS:,} are read",
            hint="remove files of other jobs from the directory",
        )
    absent = _Dump(None, "no dump", (), None)
    evidence = []
    for rank in range(size):
        dump, state = dumps.get(rank, absent), states.get(rank, RankProcess(rank=rank))
        unread = rank in problems and rank not in dumps
        evidence.append(
            RankEvidence(
                rank,
                condition_of(state, dump.answer),
                dump.frames or facts.stacks.get(rank, ()) or _logged_stack(directory, rank),
                dump.log,
                problems[rank] if unread else dump.problem,
                state.pid,
                is_unread=unread,
            )
        )
    return evidence, facts


def _candidates(directory: Path) -> list[tuple[int, Path]]:
    """Rank and path of files whose names end in a rank, oldest first, so that the newest of a rank
    counts."""
    try:
        paths = list(itertools.islice(directory.iterdir(), _MAX_FILES))
        named = [(match, path) for path in paths if (match := _NAME.search(path.name)) is not None]
        chosen = [
            (int(match["rank"]), path)
            for match, path in named
            if not _OTHER_FILES.search(path.name)
        ]
        return sorted(chosen, key=lambda item: (_modified(item[1]), item[1].name))
    except OSError as error:
        raise UsageError(
            f"cannot read {directory}: {error.strerror or error}",
            hint="pass the directory that holds the dumps",
        ) from error


def _modified(path: Path) -> float:
    """Time when a file was written; of a link that leads nowhere, when that was made. A file that
    is gone meanwhile is not read either."""
    try:
        return path.stat().st_mtime
    except OSError:
        try:
            return path.lstat().st_mtime
        except OSError:
            return 0.0


def _read(path: Path) -> _Dump:
    """A dump of torchscale's, or torch's.

    Raises:
        TraceError: it is neither.
    """
    try:
        data = read_bounded(path, MAX_DUMP_BYTES)
    except OSError as error:
        raise TraceError(error.strerror or str(error)) from error
    answer = None
    if path.name.startswith("autopsy-rank-"):
        try:
            answer = RankDump.model_validate_json(data)
        except ValidationError as error:
            raise TraceError("a damaged dump of a rank") from error
        log, problem = log_of(answer)
        frames = next((thread.frames for thread in answer.threads if thread.is_main), ())
    else:
        log, problem = read_flight_recorder(data), ""
        frames = next((call.frames for call in reversed(log.calls) if not call.is_done), ())
    return _Dump(log, problem, frames, answer)


def _logged_stack(directory: Path, rank: int) -> tuple[StackFrame, ...]:
    """What faulthandler wrote into the rank's log, in a launch directory or below torchrun's
    ``--log-dir``."""
    logs = itertools.islice(directory.glob(f"*/attempt_*/{rank}/stderr.log"), 1)
    for log in (directory / f"rank-{rank}.stderr.log", *logs):
        frames = last_stack(tail(log, LOG_BYTES))
        if frames:
            return frames
    return ()
