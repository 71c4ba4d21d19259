"""The dumps in a directory, of any job: torchscale's own, or the files that torch's flight recorder
writes."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import TraceError, UsageError
from torchscale.features.watch.hang.collective_log import DEFAULT_GROUP_DESCRIPTION, CollectiveLog
from torchscale.features.watch.hang.evidence import LOG_BYTES, condition_of, log_of, read_facts
from torchscale.features.watch.hang.flight_recorder import MAX_DUMP_BYTES, read_flight_recorder
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.log_files import (
    MAX_FILES,
    MAX_RANKS,
    RankLog,
    find_logs,
    last_error,
)
from torchscale.features.watch.hang.ras_status import MAX_STATUS_BYTES, saved_ras_notes
from torchscale.features.watch.hang.stacks import last_stack
from torchscale.features.watch.hang.watchdog.logs import WatchdogLogs, read_watchdog_logs
from torchscale.schema.launch.hang import (
    HangFacts,
    RankCondition,
    RankDump,
    RankProcess,
    StackFrame,
)
from torchscale.util.files import read_bounded
from torchscale.util.lenient import counted
from torchscale.util.processes.subprocesses import tail

_MAX_DUMPS = 4096
_NAME = re.compile(r"(?:^|\D)(?P<rank>\d{1,6})(?:\.(?:json|pkl|pickle))?$")
"""``nccl_trace_rank_3``, ``autopsy-rank-3.json``, ``dump3.pickle``: torch appends the rank to a
prefix."""
_RAS = re.compile(r"(?i)(?:^|[._-]|nccl)ras(?:[._-]|$)")
"""``ncclras.txt``, ``ras-status.json``."""
_MAX_RAS_NOTES = 16
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
            rank
            for group in groups
            if group.description == DEFAULT_GROUP_DESCRIPTION
            for rank in group.ranks
        )


def read_directory(directory: Path) -> tuple[list[RankEvidence], HangFacts]:
    """What the ranks of a job left in ``directory``, and what the launcher saw, where torchscale
    launched it.

    Raises:
        UsageError: there is no such directory, it cannot be read, or nothing in it is a dump or a log
            in which NCCL's watchdog names a collective.
    """
    facts = read_facts(directory)
    dumps, problems = _read_dumps(directory)
    states = {state.rank: state for state in facts.processes}
    named = {rank for dump in dumps.values() for rank in dump.world} | set(dumps) | set(states)
    runs = find_logs(directory)
    logs = WatchdogLogs()
    if not dumps or named - set(dumps):
        logs = read_watchdog_logs(runs)
        named |= logs.named
    if not named:
        raise _nothing_to_read(directory, problems, logs)
    size = 1 + max(named)
    if size > MAX_RANKS:
        raise UsageError(
            f"{directory}: a dump claims {size:,} ranks; at most {MAX_RANKS:,} are read",
            hint="remove files of other jobs from the directory",
        )
    paths = _by_rank(runs)
    logged = logs.evidence(range(size), [dump.log for dump in dumps.values() if dump.log])
    evidence = []
    for rank in range(size):
        state = states.get(rank, RankProcess(rank=rank))
        known = logged.get(rank, RankEvidence(rank, problem="no dump"))
        if rank in problems:
            known = replace(known, problem=problems[rank], silence="left no dump that can be read")
        if rank in dumps:
            known = _of_dump(rank, dumps[rank], state)
        else:
            known = _with_state(known, state, logs, paths.get(rank, ()))
        frames = known.frames or facts.stacks.get(rank, ()) or _logged_stack(paths.get(rank, ()))
        evidence.append(replace(known, frames=frames, pid=state.pid))
    return evidence, facts.model_copy(
        update={
            "notes": (*facts.notes, *logs.notes, *_unread(dumps.values()), *_saved_ras(directory))
        }
    )


def _unread(dumps: Iterable[_Dump]) -> list[str]:
    """What of the dumps was not understood."""
    fields = Counter[str]()
    for dump in dumps:
        if dump.log is not None:
            fields.update(dump.log.unread)
    if not fields:
        return []
    return [f"dumps: of another type than torch writes, taken as unknown: {counted(fields)}"]


def _saved_ras(directory: Path) -> tuple[str, ...]:
    """What NCCL's RAS service said, where somebody has saved it beside the dumps."""
    notes: tuple[str, ...] = ()
    for path in sorted(itertools.islice(directory.iterdir(), MAX_FILES)):
        if _RAS.search(path.name):
            with contextlib.suppress(OSError):
                notes += saved_ras_notes(read_bounded(path, MAX_STATUS_BYTES))
    return notes[:_MAX_RAS_NOTES]


def _with_state(
    known: RankEvidence, state: RankProcess, logs: WatchdogLogs, paths: Iterable[Path]
) -> RankEvidence:
    """What is known of a rank without a dump, with the state of its process. One whose log ends with
    an exception has ended where others lost a peer."""
    if known.condition is RankCondition.RUNNING:
        known = replace(known, condition=state.condition)
    if known.log is not None or not known.is_from_log:
        return known
    error = last_error(paths)
    if not error:
        return known
    if logs.lost_a_peer:
        known = replace(known, condition=RankCondition.GONE)
    return replace(known, problem=f"{known.problem}; its log ends with {error}")


def _of_dump(rank: int, dump: _Dump, state: RankProcess) -> RankEvidence:
    condition = condition_of(state, dump.answer)
    return RankEvidence(rank, condition, dump.frames, dump.log, dump.problem)


def _read_dumps(directory: Path) -> tuple[dict[int, _Dump], dict[int, str]]:
    """The newest dump of each rank, and why there is none of a rank that left a file.

    Raises:
        UsageError: the directory cannot be read.
    """
    dumps: dict[int, _Dump] = {}
    problems: dict[int, str] = {}
    for rank, path in _candidates(directory):
        try:
            dumps[rank] = _read(path)
        except TraceError as error:
            problems[rank] = f"{path.name}: {error.message}"
        if len(dumps) >= _MAX_DUMPS:
            break
    return dumps, {rank: problem for rank, problem in problems.items() if rank not in dumps}


def _nothing_to_read(
    directory: Path, problems: Mapping[int, str], logs: WatchdogLogs
) -> UsageError:
    """The error for a directory in which nothing tells of collectives."""
    found = ""
    if logs.files:
        found = f", and no file of its logs ({logs.files}) has a line of NCCL's watchdog"
    if problems:
        found += f"; {next(iter(problems.values()))}"
    return UsageError(
        f"{directory} holds no dump of torch's flight recorder{found}",
        hint="pass a directory with files that torch writes for TORCH_FR_DUMP_TEMP_FILE "
        "(TORCH_NCCL_DEBUG_INFO_TEMP_FILE in older versions), with the logs of the ranks "
        "(torchrun's --log-dir, or files as rank_0.log) in which NCCL's watchdog has written, or "
        "the launch directory of a cell that hung; compressed logs (.gz) and UTF-16 are not read",
    )


def _candidates(directory: Path) -> list[tuple[int, Path]]:
    """Rank and path of files whose names end in a rank, oldest first, so that the newest of a rank
    counts."""
    try:
        paths = list(itertools.islice(directory.iterdir(), MAX_FILES))
        named = [(match, path) for path in paths if (match := _NAME.search(path.name)) is not None]
        chosen = [
            (int(match["rank"]), path)
            for match, path in named
            if not _OTHER_FILES.search(path.name) and not path.is_dir()
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


def _by_rank(runs: Iterable[Sequence[RankLog]]) -> dict[int, list[Path]]:
    """The logs of each rank, of the newest run that has some."""
    paths: dict[int, list[Path]] = {}
    for run in runs:
        of_run: dict[int, list[Path]] = {}
        for log in run:
            if log.rank is not None:
                of_run.setdefault(log.rank, []).append(log.path)
        paths = {**of_run, **paths}
    return paths


def _logged_stack(logs: Iterable[Path]) -> tuple[StackFrame, ...]:
    """What faulthandler wrote into the logs of a rank."""
    for log in logs:
        frames = last_stack(tail(log, LOG_BYTES))
        if frames:
            return frames
    return ()
