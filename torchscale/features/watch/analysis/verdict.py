"""What limits a job, and since when: the rules of the diagnosis on the whole job and on its
stretches of one level, and what only a job shows: checkpoints, evaluations, a rank that grows
slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.rules_pauses import CERTAIN_PAUSES
from torchscale.analysis.diagnosis.rules_spells import judge_spells
from torchscale.analysis.diagnosis.rules_straggler import LASTING_SECONDS
from torchscale.analysis.diagnosis.shared import COST_FLOOR, EXPLAINED_SHARE, medians_of_others
from torchscale.analysis.diagnosis.signals import MIN_COMPARED, Signals
from torchscale.analysis.diagnosis.spells import Spells, slow_spells
from torchscale.analysis.diagnosis.step_windows import block_medians
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.analysis.stats.change_points import NoisySeries, change_points
from torchscale.features.watch.analysis.late_rank import late_rank
from torchscale.features.watch.analysis.signals import job_signals
from torchscale.features.watch.analysis.step_log import LongStep, StepLog
from torchscale.schema.profiles.finding import (
    Abstention,
    Confidence,
    Diagnosis,
    Finding,
    FindingKind,
)
from torchscale.schema.watch.report import span_text
from torchscale.util.units import format_seconds

_POINTS = 240
"""Of the series in which changes are looked for: a change is placed to 0.5 % of the job, and the
permutations of a series take 20 ms."""
_LEAST_POINTS = 24
_POINT_STEPS = 5
_POINT_SECONDS = 0.1
"""A point of the series is the median of so many steps and so long at least: what disturbs a host
lasts some milliseconds, and neighbouring points would not be independent."""
_LEAST_CHANGE = 0.05
"""Of the logarithm of a level: smaller changes come and go with a host's clock."""
_CLOSE_POINTS = 4
"""Changes of several series that lie so near each other are one."""
_MAX_SERIES = 16
"""Ranks whose series are searched: those that were slowest for a while."""
_LEAST_SEGMENT = 2 * MIN_COMPARED
"""Steps of a stretch that is judged by itself."""
_LASTING_SHARE = 0.25
"""Of the job's steps: what has begun and goes on is told when it is that much of the job, and what
has passed when it lasted for :data:`LASTING_SECONDS`; a host disturbs a rank for seconds, too."""
_GROWTH_CORRELATION = 0.8
"""Between time and a rank's excess (Spearman's). A rank that is slow from the middle on has 0.87 at
most, so that a line must fit better than one change, too."""
_GROWTH_BATCHES = 24
_GROWTH_FLOOR = 0.05
"""Share of the others' own time by which the last quarter exceeds the first."""
_REGULAR_SHARE = 0.7
"""Share of the distances between pauses that are about equal, for pauses to have a period."""
_REGULAR_SPREAD = 0.1
_LARGE_SHARE = 0.5
_FAST_LEVEL = 0.25
"""Quantile of a rank's windows that is its fast level, where it is slow half of the time."""
_MIN_PAUSES = 3
_LABEL_FLOOR = 0.02
"""Share of the job that checkpoints or evaluations take."""
_RANK_KINDS = (
    FindingKind.STRAGGLER,
    FindingKind.INTERMITTENT_STRAGGLER,
    FindingKind.UNEVEN_STAGES,
)
_OF_STRETCHES = (FindingKind.STRAGGLER, FindingKind.INPUT_PIPELINE, FindingKind.UNEVEN_STAGES)
"""What has a beginning: what comes and goes is of the whole job."""


@dataclass(frozen=True)
class JobFinding:
    """A finding and the steps that it is about.

    Attributes:
        finding: What limits the job there; its costs are shares of a step there.
        first, last: Steps; ``None`` for the job's first and its last.
        slow: Which of its steps are long, where that is known: by step, from step 0 on.
    """

    finding: Finding
    first: int | None = None
    last: int | None = None
    slow: NDArray[np.bool_] | None = None

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


def judge_job(log: StepLog, *, on_device: bool = False) -> JobVerdict:
    """What limits the job as a whole and in its stretches.

    Args:
        log: All steps, without those of the warm-up.
        on_device: As for :func:`~torchscale.features.watch.analysis.signals.job_signals`.
    """
    table = log.table
    if table is None:
        return JobVerdict()
    signals = job_signals(table, log, on_device=on_device, single=log.recent(table.first))
    whole = _diagnose(signals, table, log, on_device=on_device)
    findings = [_with_steps(finding, signals) for finding in whole.findings]
    findings += [JobFinding(finding) for finding in _labelled_pauses(table, log)]
    growing = None
    if table.waits_by is not WaitsBy.NOTHING:
        growing = _growing(table, log)
    changes: tuple[int, ...] = ()
    if growing is not None:
        findings = [item for item in findings if item.finding.rank != growing.rank]
        findings.append(JobFinding(growing))
    else:
        changes = _changes(table, log)
        later = _of_stretches(findings, changes, log, on_device=on_device)
        findings = [item for item in findings if not _is_one_change(item, later)] + later
    if table.waits_by is not WaitsBy.NOTHING and not signals.staged:
        late = late_rank(table, log.ranks, [one.finding for one in findings], whole.abstentions)
        findings += [JobFinding(late)] if late is not None else []
    findings.sort(key=lambda item: -item.finding.cost_percent)
    found = {item.finding.kind for item in findings}
    left = tuple(item for item in whole.abstentions if item.kind not in found)
    return JobVerdict(tuple(findings), left, changes)


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
        return _with_periods(diagnosis, table, log)
    if not _names_slow_rank(diagnosis):
        calm = replace(table, own=table.quiet, delayed=np.zeros_like(table.delayed))
        quiet = diagnose(job_signals(calm, log, on_device=on_device))
        if _names_slow_rank(quiet):
            diagnosis = quiet
    return _with_periods(_with_stage_spells(diagnosis, signals, log), table, log)


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
    edges = [0, *changes, log.steps]
    is_known = {(item.finding.kind, item.finding.rank) for item in known}
    runs: dict[tuple[FindingKind, int | None], list[list[JobFinding]]] = {}
    for first, last in pairwise(edges):
        part = log.between(first, last)
        if part is None or len(part) * log.per_column < _LEAST_SEGMENT:
            continue
        signals = job_signals(part, log, on_device=on_device)
        for finding in _diagnose(signals, part, log, on_device=on_device).findings:
            key = (finding.kind, finding.rank)
            if key in is_known or finding.kind not in _OF_STRETCHES or finding.rank is None:
                continue
            item = JobFinding(finding, first or None, last if last < log.steps else None)
            runs.setdefault(key, [])
            if runs[key] and runs[key][-1][-1].last == first:
                runs[key][-1].append(item)
            else:
                runs[key].append([item])
    merged = [_merged(run) for of_key in runs.values() for run in of_key]
    return [item for item in merged if _lasts(item, log)]


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
    """One finding over neighbouring stretches: the words are those of the costliest."""
    costliest = max(run, key=lambda item: item.finding.cost_seconds)
    return JobFinding(costliest.finding, run[0].first, run[-1].last)


def _changes(table: JobSteps, log: StepLog) -> tuple[int, ...]:
    """Steps at which the level of a rank beside the others, or of the whole job, changed."""
    seconds = float(table.wall.mean(axis=0).sum()) * log.per_column
    count = min(_POINTS, len(table) // _POINT_STEPS, int(seconds / _POINT_SECONDS))
    if count < _LEAST_POINTS:
        return ()
    edges = np.linspace(0, len(table), count + 1).round().astype(int)
    logs = [block_medians(np.log(np.maximum(table.wall.mean(axis=0), 1e-9))[None], edges)[0]]
    if len(log.ranks) > 1:
        relative = block_medians(np.log(np.maximum(table.busy, 1e-9)), edges)
        relative = relative - medians_of_others(relative)
        peaks = relative.max(axis=1)
        logs += list(relative[np.argsort(-peaks)[:_MAX_SERIES]])
    places = change_points([NoisySeries(tuple(series.tolist())) for series in logs])
    found = sorted(
        {
            place
            for series, of_series in zip(logs, places, strict=True)
            for place in _large(series, of_series)
        }
    )
    kept: list[int] = []
    for place in found:
        if not kept or place - kept[-1] > _CLOSE_POINTS:
            kept.append(place)
    return tuple(table.first + int(edges[place]) * log.per_column for place in kept)


def _large(series: NDArray[np.float64], places: Sequence[int]) -> list[int]:
    """The changes by enough, from the median of the level before to that of the one after."""
    edges = [0, *places, len(series)]
    levels = [float(np.median(series[begin:end])) for begin, end in pairwise(edges)]
    return [
        place
        for place, before, after in zip(places, levels, levels[1:], strict=False)
        if abs(after - before) >= _LEAST_CHANGE
    ]


def _growing(table: JobSteps, log: StepLog) -> Finding | None:
    """A rank that takes longer and longer by itself, beside the others."""
    if len(log.ranks) < 2 or log.steps < _GROWTH_BATCHES * 2:
        return None
    edges = np.linspace(0, len(table), _GROWTH_BATCHES + 1).round().astype(int)
    own = block_medians(table.calm, edges)
    excess = own - medians_of_others(own)
    row = int(np.argmax(excess[:, -_GROWTH_BATCHES // 4 :].mean(axis=1)))
    mine, time = excess[row], np.arange(_GROWTH_BATCHES, dtype=float)
    typical = float(np.median(medians_of_others(own)[row]))
    quarters = [float(part.mean()) for part in np.array_split(mine, 4)]
    grows = quarters[3] - quarters[0] > _GROWTH_FLOOR * typical
    order = np.argsort(np.argsort(mine)).astype(float)
    correlation = float(np.corrcoef(time, order)[0, 1])
    rest = mine - np.polyval(np.polyfit(time, mine, 1), time)
    if not grows or correlation < _GROWTH_CORRELATION or (rest**2).sum() > _best_step(mine):
        return None
    step_seconds = float(table.wall.mean())
    cost = float(min(mine.mean(), table.blame[row].mean() / (len(log.ranks) - 1)))
    if cost < COST_FLOOR * step_seconds:
        return None
    rank = log.ranks[row]
    shown = ", ".join(format_seconds(max(0.0, quarter)) for quarter in quarters)
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=cost / step_seconds * 100,
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"rank {rank} takes longer and longer by itself, and the others wait for it: "
        f"{shown} a step more than they do, from quarter to quarter of the job",
        evidence=(f"correlation with time {correlation:.2f}; a line fits better than one change",),
        advice=f"look for what grows on rank {rank}: memory and garbage collection, logs, caches, "
        "heat of its device, a disk that fills",
    )


def _best_step(values: NDArray[np.float64]) -> float:
    """Sum of squares that is left by one change of level at the best place."""
    sums = [
        float(((values[:cut] - values[:cut].mean()) ** 2).sum())
        + float(((values[cut:] - values[cut:].mean()) ** 2).sum())
        for cut in range(1, len(values))
    ]
    return min(sums)


def _labelled_pauses(table: JobSteps, log: StepLog) -> list[Finding]:
    """Checkpoints and evaluations whose calls were seen."""
    found = []
    for what, times, call in (
        ("checkpoints", table.saving, "torch.save or torch.distributed.checkpoint.save"),
        ("evaluations", table.evaluating, "model.eval() to model.train()"),
    ):
        seconds = times.mean(axis=1)
        row = int(seconds.argmax())
        cost, step_seconds = float(seconds[row]), float(table.wall.mean())
        if cost < _LABEL_FLOOR * step_seconds:
            continue
        others = float(np.median(np.delete(seconds, row))) if len(seconds) > 1 else cost
        rank = log.ranks[row] if others < EXPLAINED_SHARE * cost else None
        which = [item for item in log.long_steps if item.row == row]
        where = "on every rank" if rank is None else f"on rank {rank} alone, and the others wait"
        found.append(
            Finding(
                kind=FindingKind.PAUSES,
                rank=rank,
                cost_percent=cost / step_seconds * 100,
                cost_seconds=cost,
                confidence=Confidence.HIGH,
                summary=f"{what} ({call}) take {format_seconds(cost)} of each step on average, "
                f"{where}",
                evidence=tuple(_period_lines(which)),
                advice=_PAUSE_ADVICE[what],
            )
        )
    return found


_PAUSE_ADVICE = {
    "checkpoints": "save less often, to a faster disk, or asynchronously "
    "(torch.distributed.checkpoint.async_save)",
    "evaluations": "evaluate less often or on fewer samples, and on all ranks at once",
}


def _with_periods(diagnosis: Diagnosis, table: JobSteps, log: StepLog) -> Diagnosis:
    """Pauses with their period; without what checkpoints and evaluations explain."""
    findings = []
    explained = float((table.saving + table.evaluating).mean(axis=1).max())
    for finding in diagnosis.findings:
        if finding.kind is not FindingKind.PAUSES:
            findings.append(finding)
            continue
        if explained > EXPLAINED_SHARE * finding.cost_seconds:
            continue
        large = _large_pauses(log.long_steps)
        rows = {item.row for item in large}
        update: dict[str, object] = {}
        told: list[str] = []
        if finding.rank is None and len(rows) == 1 and len(large) >= CERTAIN_PAUSES:
            update["rank"] = log.ranks[rows.pop()]
            told.append(f"all {len(large)} large ones are on rank {update['rank']}")
        evidence = (*finding.evidence, *told, *_period_lines(large))
        findings.append(finding.model_copy(update={**update, "evidence": evidence}))
    return diagnosis.model_copy(update={"findings": tuple(findings)})


def _large_pauses(pauses: Sequence[LongStep]) -> list[LongStep]:
    """Those that are at least half as long as the longest: not what a host does beside them."""
    longest = max((item.excess for item in pauses), default=0.0)
    return [item for item in pauses if item.excess >= _LARGE_SHARE * longest]


def _period_lines(pauses: Sequence[LongStep]) -> list[str]:
    """``every 60 steps, 182 ms each``, where pauses come regularly."""
    steps = sorted({item.step for item in pauses})
    if len(steps) < _MIN_PAUSES:
        return []
    distances = np.diff(steps)
    typical = float(np.median(distances))
    near = np.abs(distances - typical) <= max(1.0, _REGULAR_SPREAD * typical)
    length = format_seconds(float(np.median([item.excess for item in pauses])))
    if near.mean() >= _REGULAR_SHARE:
        return [f"every {typical:.0f} steps, {length} each"]
    return [f"{len(steps)} of them, {length} each, at no regular distance"]
