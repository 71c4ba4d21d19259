"""What limits a job, and since when: the rules of the diagnosis on the whole job and on its
stretches of one level, everyday causes, and a rank that grows slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.rules_spells import judge_spells
from torchscale.analysis.diagnosis.rules_straggler import LASTING_SECONDS
from torchscale.analysis.diagnosis.signals import Signals
from torchscale.analysis.diagnosis.spells import Spells, slow_spells
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.analysis.stats.peers import medians_of_others
from torchscale.features.watch.analysis.everyday.cause import LineSeconds
from torchscale.features.watch.analysis.everyday.find import everyday_causes
from torchscale.features.watch.analysis.everyday.memory import MemoryLimits
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.growing_rank import growing_rank
from torchscale.features.watch.analysis.late_rank import late_rank
from torchscale.features.watch.analysis.level_changes import LEAST_STRETCH, level_changes
from torchscale.features.watch.analysis.signals import job_signals
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.schema.profiles.finding import (
    Abstention,
    Diagnosis,
    Finding,
    FindingKind,
)
from torchscale.schema.watch.report import span_text

_LASTING_SHARE = 0.25
"""Of the job's steps: what has begun and goes on is told when it is that much of the job, and what
has passed when it lasted for :data:`LASTING_SECONDS`; a host disturbs a rank for seconds, too."""
_FAST_LEVEL = 0.25
"""Quantile of a rank's windows that is its fast level, where it is slow half of the time."""
_RANK_KINDS = (
    FindingKind.STRAGGLER,
    FindingKind.INTERMITTENT_STRAGGLER,
    FindingKind.UNEVEN_STAGES,
)
_OF_STRETCHES = (FindingKind.STRAGGLER, FindingKind.INPUT_PIPELINE, FindingKind.UNEVEN_STAGES)
"""What has a beginning: what comes and goes is of the whole job."""
_SAME_LEVEL = 0.5
"""Of what a rank costs in one stretch: with so much in the next it is the same there, as every
quarter of a steady series has half of its mean."""
_OfRank = tuple[FindingKind, int | None]


@dataclass(frozen=True)
class JobFinding:
    """A finding and the steps that it is about.

    Attributes:
        finding: What limits the job there; its costs are shares of a step there.
        first, last: Steps; ``None`` for the job's first and its last.
        slow: Which of its steps are long, where that is known: by step, from step 0 on.
        lines: Lines of the program at which that time goes, where they are known already.
    """

    finding: Finding
    first: int | None = None
    last: int | None = None
    slow: NDArray[np.bool_] | None = None
    lines: LineSeconds = ()

    @property
    def span(self) -> str:
        """``since step 12,400``; empty where it is about the whole job."""
        return span_text(self.first, self.last)


@dataclass(frozen=True)
class JobVerdict:
    """What limits a job.

    Attributes:
        findings: The costliest first.
        abstentions: What could not be judged.
        changes: Steps at which the level of a rank, or of all, changed.
    """

    findings: tuple[JobFinding, ...] = ()
    abstentions: tuple[Abstention, ...] = ()
    changes: tuple[int, ...] = ()


def judge_job(
    log: StepLog,
    evidence: Sequence[ShownByRank] = (),
    *,
    on_device: bool = False,
    limits: MemoryLimits | None = None,
) -> JobVerdict:
    """What limits the job as a whole and in its stretches.

    Args:
        log: All steps, without those of the warm-up.
        evidence: What each rank showed beside its steps, by row; empty without.
        on_device: As for :func:`~torchscale.features.watch.analysis.signals.job_signals`.
        limits: Memory that there is, where it is known.
    """
    table = log.table
    if table is None:
        return JobVerdict()
    signals = job_signals(table, log, on_device=on_device, single=log.recent(table.first))
    whole = _diagnose(signals, table, log, on_device=on_device)
    found = [_with_steps(finding, signals) for finding in whole.findings]
    growing = None
    if table.waits_by is not WaitsBy.NOTHING:
        growing = growing_rank(table, log)
    changes: tuple[int, ...] = ()
    if growing is not None:
        found = [item for item in found if not _is_slow_rank(item.finding, growing.rank)]
        found.append(JobFinding(growing))
    else:
        changes = level_changes(table, log)
        later = _of_stretches(found, changes, log, on_device=on_device)
        found = [item for item in found if not _is_one_change(item, later)] + later
    causes, kept = everyday_causes(
        log, evidence, [item.finding for item in found], on_device=on_device, limits=limits
    )
    places = {_key(item.finding): item for item in found}
    found = [replace(places[_key(finding)], finding=finding) for finding in kept]
    found += [JobFinding(cause.finding, lines=cause.lines) for cause in causes]
    if table.waits_by is not WaitsBy.NOTHING and not signals.staged:
        late = late_rank(table, log.ranks, [one.finding for one in found], whole.abstentions)
        found += [JobFinding(late)] if late is not None else []
    found.sort(key=lambda item: -item.finding.cost_percent)
    kinds = {item.finding.kind for item in found}
    left = tuple(item for item in whole.abstentions if item.kind not in kinds)
    return JobVerdict(tuple(found), left, changes)


def _is_slow_rank(finding: Finding, rank: int | None) -> bool:
    return finding.rank == rank and finding.kind in (*_RANK_KINDS, FindingKind.PAUSES)


def _key(finding: Finding) -> tuple[FindingKind, int | None, int | None]:
    return finding.kind, finding.rank, finding.period_steps


def _with_steps(finding: Finding, signals: Signals) -> JobFinding:
    """With the steps that a finding with a period is about."""
    for period in signals.periods:
        rank = None if period.row is None else signals.ranks[period.row]
        if finding.period_steps == period.steps and finding.rank == rank:
            return JobFinding(finding, period.first, None, period.slow)
    return JobFinding(finding)


def _diagnose(signals: Signals, table: JobSteps, log: StepLog, *, on_device: bool) -> Diagnosis:
    """By each rank's own time; where that names no slow rank, by what of it no collective disturbs:
    the threads of gloo share the cores of a rank, and make its own time scatter."""
    diagnosis = diagnose(signals)
    if table.waits_by is not WaitsBy.CALLS:
        return diagnosis
    if not _names_slow_rank(diagnosis):
        calm = replace(table, own=table.quiet, delayed=np.zeros_like(table.delayed))
        quiet = diagnose(job_signals(calm, log, on_device=on_device))
        if _names_slow_rank(quiet):
            diagnosis = quiet
    return _with_stage_spells(diagnosis, signals, log)


def _with_stage_spells(diagnosis: Diagnosis, signals: Signals, log: StepLog) -> Diagnosis:
    """In a pipeline, with a rank that is slow for a while, again and again. Stages hold different
    work, so that each rank is compared with its own fast level."""
    if not signals.staged or signals.windows is None:
        return diagnosis
    compute = signals.windows.compute
    level = np.quantile(compute, _FAST_LEVEL, axis=1, keepdims=True)
    scaled = compute / np.maximum(level, 1e-9) * float(level.mean())
    windows = replace(signals.windows, compute=np.asarray(scaled), quiet=None)
    spells = slow_spells(windows, range(len(log.ranks)))
    if not isinstance(spells, Spells):
        return diagnosis
    found = judge_spells(signals, spells, spells.cost, "the others, beside its own fast level")
    if not isinstance(found, Finding):
        return diagnosis
    kept = [
        finding
        for finding in diagnosis.findings
        if finding.kind is not FindingKind.UNEVEN_STAGES or finding.rank != found.rank
    ]
    return diagnosis.model_copy(update={"findings": (found, *kept)})


def _names_slow_rank(diagnosis: Diagnosis) -> bool:
    return any(finding.kind in _RANK_KINDS for finding in diagnosis.findings)


def _of_stretches(
    known: Sequence[JobFinding], changes: Sequence[int], log: StepLog, *, on_device: bool
) -> list[JobFinding]:
    """Findings of single stretches that the whole job does not show; one that goes on in the next
    stretch is one finding."""
    if not changes:
        return []
    is_known = {_of_rank(item.finding) for item in known}
    runs: dict[_OfRank, list[list[JobFinding]]] = {}
    for first, last in pairwise([0, *changes, log.steps]):
        part, end = log.between(first, last), last if last < log.steps else None
        if part is None:
            continue
        named = _named(part, log, on_device=on_device)
        for key, of_key in runs.items():
            before = of_key[-1][-1]
            if before.last == first and key not in named and _persists(before, part, log):
                of_key[-1][-1] = replace(before, last=end)
        for key, finding in named.items():
            if key in is_known:
                continue
            item = JobFinding(finding, first or None, end)
            of_key = runs.setdefault(key, [])
            if of_key and of_key[-1][-1].last == first:
                of_key[-1].append(item)
            else:
                of_key.append([item])
    merged = [_merged(run) for of_key in runs.values() for run in of_key]
    return [item for item in merged if _lasts(item, log)]


def _of_rank(finding: Finding) -> _OfRank:
    return finding.kind, finding.rank


def _named(part: JobSteps, log: StepLog, *, on_device: bool) -> dict[_OfRank, Finding]:
    """What a stretch shows of single ranks; nothing where it is too short to be judged."""
    if len(part) * log.per_column < LEAST_STRETCH:
        return {}
    signals = job_signals(part, log, on_device=on_device)
    found = _diagnose(signals, part, log, on_device=on_device).findings
    return {
        _of_rank(finding): finding
        for finding in found
        if finding.kind in _OF_STRETCHES and finding.rank is not None
    }


def _persists(item: JobFinding, part: JobSteps, log: StepLog) -> bool:
    """Whether a rank is as slow in the next stretch, which is too short or too noisy to show it by
    itself."""
    named_in = log.between(item.first or 0, item.last or log.steps)
    if named_in is None or item.finding.rank is None or len(part) < 2:
        return False
    row = log.ranks.index(item.finding.rank)
    of_data = item.finding.kind is FindingKind.INPUT_PIPELINE
    before, now = (
        # of a few steps a single long one would be most of their mean
        float(np.sort(beyond[row] - medians_of_others(beyond)[row])[:-1].mean())
        for beyond in (each.data if of_data else each.busy for each in (named_in, part))
    )
    return now >= _SAME_LEVEL * before > 0


def _lasts(item: JobFinding, log: StepLog) -> bool:
    """Whether a stretch is long enough to be no passing disturbance."""
    first, last = item.first or 0, item.last or log.steps
    part = log.between(first, last)
    if part is None:
        return False
    seconds = float(part.wall.mean(axis=0).sum()) * log.per_column
    goes_on = item.last is None and last - first >= _LASTING_SHARE * log.steps
    return goes_on or seconds >= LASTING_SECONDS


def _is_one_change(item: JobFinding, later: Sequence[JobFinding]) -> bool:
    """Whether what look like slow spells of a rank is that it became slow once and stays so."""
    return item.finding.kind is FindingKind.INTERMITTENT_STRAGGLER and any(
        other.finding.rank == item.finding.rank and other.last is None for other in later
    )


def _merged(run: Sequence[JobFinding]) -> JobFinding:
    """One finding over neighbouring stretches: the words are those of the costliest, and it begins
    where it costs about as much."""
    costliest = max(run, key=lambda item: item.finding.cost_seconds)
    least = _SAME_LEVEL * costliest.finding.cost_seconds
    begins = next(item.first for item in run if item.finding.cost_seconds >= least)
    return JobFinding(costliest.finding, begins, run[-1].last)
