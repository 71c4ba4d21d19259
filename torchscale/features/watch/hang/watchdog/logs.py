"""What NCCL's watchdogs say in the logs of a job, and which ranks these are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torchscale.features.watch.hang.collective_log import CollectiveLog, ProcessGroup
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.log_files import LogLines, RankLog
from torchscale.features.watch.hang.watchdog.calls import collectives_of, fitted, operation_of
from torchscale.features.watch.hang.watchdog.groups import (
    ToldGroup,
    groups_by_rank,
    missing_places,
    rank_aside,
)
from torchscale.features.watch.hang.watchdog.lines import read_log
from torchscale.features.watch.hang.watchdog.ranks import watchdogs_of_run
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    UNNAMED,
    GroupStatus,
    RankWatchdog,
)
from torchscale.features.watch.hang.watchdog.unnamed import place_unnamed
from torchscale.schema.launch.hang import RankCondition, StackFrame
from torchscale.util.text import ranks_label
from torchscale.util.units import format_seconds

_MAX_NOTES = 32
_ASIDE = "is in no collective that failed, as all other ranks are"
_LOST_PEER = "remote process exited"


@dataclass(frozen=True)
class WatchdogLogs:
    """What the logs of a job say.

    Attributes:
        ranks: What the watchdogs of each rank say.
        named: Ranks that have a log or a line of a watchdog; none where no watchdog tells of
            collectives.
        notes: Evidence, a line each.
        files: Number of logs that were read.
    """

    ranks: Mapping[int, RankWatchdog] = field(default_factory=dict)
    named: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    files: int = 0

    def evidence(
        self, ranks: Iterable[int], dumped: Sequence[CollectiveLog]
    ) -> dict[int, RankEvidence]:
        """What is known of each of these ranks from the logs; empty where no watchdog tells of
        collectives.

        Args:
            ranks: Every rank of the job.
            dumped: What other ranks' recorders hold.
        """
        if not self.named:
            return {}
        evidence = {rank: self._of_rank(rank, dumped) for rank in ranks}
        found = rank_aside(self.ranks, len(evidence))
        if found is None:
            return evidence
        aside, group = found
        for rank in group.places:
            evidence[rank] = _with_member(evidence[rank], group, aside)
        evidence[aside] = replace(evidence[aside], silence=_ASIDE)
        return evidence

    @property
    def lost_a_peer(self) -> bool:
        """Whether a rank's communicator failed since that of another one was gone."""
        return any(
            status.failed is not None and _LOST_PEER in status.failed.error
            for watchdog in self.ranks.values()
            for status in watchdog.groups.values()
        )

    @cached_property
    def _groups(self) -> dict[tuple[str, int], ToldGroup]:
        return groups_by_rank(self.ranks)

    def _of_rank(self, rank: int, dumped: Sequence[CollectiveLog]) -> RankEvidence:
        watchdog = self.ranks.get(rank)
        silence, problem = "left no line of NCCL's watchdog", "no line of NCCL's watchdog"
        frames: tuple[StackFrame, ...] = ()
        log = None
        if watchdog is not None:
            log = collectives_of(rank, watchdog, self._groups)
            frames = watchdog.frames
            if watchdog.groups:
                silence, problem = "left no count of collectives", "no count of its collectives"
        condition = RankCondition.RUNNING
        if _has_gone(self.ranks, rank):
            condition = RankCondition.GONE
        if log is not None:
            log, problem = fitted(rank, log, dumped), ""
        return RankEvidence(
            rank, condition, frames, log, problem, silence=silence, is_from_log=True
        )


def _with_member(evidence: RankEvidence, told: ToldGroup, rank: int) -> RankEvidence:
    """The same where ``rank`` is in a group, too, of which no recorder tells the ranks."""
    if evidence.log is None:
        return evidence
    known = evidence.log.groups.get(told.name)
    if known is None or known.ranks != told.members:
        return evidence
    group = ProcessGroup(known.description, tuple(sorted({*told.members, rank})), is_inferred=True)
    groups = {**evidence.log.groups, told.name: group}
    return replace(evidence, log=replace(evidence.log, groups=groups))


def read_watchdog_logs(runs: Sequence[Sequence[RankLog]]) -> WatchdogLogs:
    """What the watchdogs in the logs of a job say. Of several runs that had the same ranks the
    first counts."""
    files = sum(map(len, runs))
    lines = LogLines(files)
    ranks: dict[int, RankWatchdog] = {}
    named: set[int] = set()
    for run in runs:
        found, in_run = _read_run(run, lines)
        if not (set(found) | in_run) & (set(ranks) | named):
            ranks.update(found)
            named |= in_run
    if not any(map(_says_something, ranks.values())):
        return WatchdogLogs(files=files)
    assumed = place_unnamed(ranks, max(named | set(ranks)))
    notes = [*_notes(ranks), *missing_places(ranks)[:_MAX_NOTES], *assumed]
    if lines.cut:
        notes.append(f"of {len(lines.cut)} long logs only the end was read, as of {lines.cut[0]}")
    return WatchdogLogs(ranks, frozenset(named) | set(ranks), tuple(notes), files)


def _read_run(run: Sequence[RankLog], lines: LogLines) -> tuple[dict[int, RankWatchdog], set[int]]:
    """What the logs of one run say, and the ranks that it has by name. Where lines name ranks at
    one distance from those of the files, as on a second node, the others are at it, too; where
    names are of something else, they are not used."""
    ranks: dict[int, RankWatchdog] = {}
    distances: set[int] = set()
    is_shared = False
    said = [read_log(lines.of(log.path), is_of_one=log.rank is not None) for log in run]
    for log, found in zip(run, watchdogs_of_run(run, said), strict=True):
        is_shared = is_shared or len(found) > 1
        for rank, watchdog in found.items():
            if rank not in ranks or not _says_something(ranks[rank]):
                ranks[rank] = watchdog
            if log.rank is not None:
                distances.add(rank - log.rank)
    named = {log.rank for log in run if log.rank is not None}
    if is_shared or len(distances) > 1:
        return ranks, set()
    distance = next(iter(distances), 0)
    return ranks, {rank + distance for rank in named}


def _says_something(watchdog: RankWatchdog) -> bool:
    told = any(
        status.failed is not None or status.enqueued is not None
        for status in watchdog.groups.values()
    )
    return told or bool(watchdog.unplaced)


def _has_gone(ranks: Mapping[int, RankWatchdog], rank: int) -> bool:
    """Whether a rank's process had ended before any collective failed."""
    watchdog = ranks.get(rank)
    failures = [other.failed_at for other in ranks.values() if other.failed_at is not None]
    return (
        watchdog is not None
        and watchdog.failed_at is None
        and watchdog.exited_at is not None
        and bool(failures)
        and watchdog.exited_at < min(failures)
    )


def _notes(ranks: Mapping[int, RankWatchdog]) -> list[str]:
    """A line for all ranks of which the same is said."""
    lines: dict[str, list[int]] = {}
    for rank, watchdog in sorted(ranks.items()):
        for name, status in watchdog.groups.items():
            text = _said(name, status)
            if text:
                lines.setdefault(text, []).append(rank)
    notes = [f"{ranks_label(of_rank)}: NCCL's watchdog: {text}" for text, of_rank in lines.items()]
    if len(notes) > _MAX_NOTES:
        return [*notes[:_MAX_NOTES], f"{len(notes) - _MAX_NOTES} more lines of NCCL's watchdog"]
    return notes


def _said(name: str, status: GroupStatus) -> str:
    """``all_reduce #54 timed out after 600 s; last enqueued #84, last completed #53``."""
    parts = []
    failed = status.failed
    if failed is not None and failed.error:
        parts.append(f"{operation_of(failed)} #{failed.number} failed: {failed.error}")
    elif failed is not None:
        after = ""
        if failed.limit_ms is not None:
            after = f" after {format_seconds(failed.limit_ms / 1000)}"
        parts.append(f"{operation_of(failed)} #{failed.number} timed out{after}")
    if status.enqueued is not None:
        counts = f"last enqueued {_number(status.enqueued)}"
        if status.started > 0:
            counts += f", last started {_number(status.started)}"
        if status.completed is not None:
            counts += f", last completed {_number(status.completed)}"
        parts.append(counts)
    text = "; ".join(parts)
    if text and name not in {DEFAULT_GROUP, *UNNAMED}:
        text += f" (group {status.description or name})"
    return text


def _number(number: int) -> str:
    """``#53``; torch writes -1 before the first one."""
    if number <= 0:
        return "none"
    return f"#{number}"
