"""Rules about ranks that wait for one another or for data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    COST_FLOOR,
    EXPLAINED_SHARE,
    MIN_SAMPLES,
    Judgement,
    cannot_name,
    explained_by_processes,
    high_if,
    median_of_others,
    per_step,
    percent,
    seconds_with_interval,
)
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    Origin,
    Pauses,
    Signals,
    SignalSeries,
)
from torchscale.analysis.diagnosis.slow_rank import SlowRank
from torchscale.analysis.stats.series import mean_interval
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_change, format_percent, format_seconds

COMPUTE_EXCESS = 0.03
"""How much slower than the others' median a straggler computes (docs/diagnosis.md). On real gloo
ranks with 2, 5 or 12 ms injected into steps of 32 to 45 ms it names the rank in 26 of 27 runs, and
no rank in 12 clean ones (docs/tested-on.md)."""
QUIET_EXCESS = 0.10
"""How much slower a rank's forward passes and optimizer steps are to confirm by themselves that it
is a straggler. Chosen above the per cents by which cores of a shared host differ for as long as a
run lasts: less than that must also show in passes without gradient synchronization."""
BLAME_FLOOR = 0.5
"""Share of all waiting for which a straggler arrives last, with three ranks. With two the share
says nothing: one of them is always last."""
BLAME_OVER_CHANCE = 1.5
"""The same with more ranks: ranks that only scatter have 1 ÷ ranks each. Four ranks on two cores
scatter by as much as a rank that is 2 ms slower in 40 ms makes them wait, and it has 0.41 to 0.43
of the blame."""
STEADY_SHARE = 0.5
"""A straggler is slow in every quarter of a run, by at least this share of its mean excess;
interference comes and goes."""
IMBALANCE_FLOOR = 0.12
"""Share of the step. Ranks do not leave a collective at the same moment and their steps scatter,
which counts as waiting: 12 clean runs of gloo ranks on two cores have none (docs/tested-on.md)."""
IMBALANCE_TOP_BLAME = 0.9
"""Chosen: beyond this share of the blame a single rank is late, and ranks do not take turns."""
INPUT_FLOOR = 0.05
"""Share of the step that every rank waits for data. Above :data:`COST_FLOOR`, since collating and
copying a batch takes something in every run."""
PAUSE_FLOOR = 0.03
"""Share of the step that rare long steps cost. Chosen above :data:`COST_FLOOR`: their number is
small and their sum scatters."""
MIN_PAUSES = 3
"""Chosen: fewer long steps are accidents (a checkpoint, a job that started) and no pattern."""
CERTAIN_PAUSES = 5
"""Chosen: from here on they are a pattern whatever their cause, and the confidence is high."""
LASTING_SECONDS = 10.0
"""A recording shorter than this may show a passing disturbance only: on a shared host with two
cores, one of them ran 30 % slower for 2.5 s of 12, and the guest's counters (steal, other
processes) showed nothing."""
SAME_RANK_SHARE = 0.9
"""Share of what all ranks' long steps cost that falls on one rank, for that rank to be named: what
the host does beside training adds a long step here and there on any rank."""
SAME_RANK_CHANCE = 0.1
"""Most probable that chance puts as many pauses on one rank. Of two ranks, five of five fall on the
same one in 6 % of cases, of three ranks four of four in 4 %."""
CERTAIN_CHANCE = 0.01
"""Below this chance the rank is certain."""
BLOCKS = 12
"""Parts that windows of steps are joined to, for the interval of a rank's mean: neighbouring
windows are not independent, parts of a run are nearly so, and with twelve of them t is 2.2."""
_MAX_SHOWN_RANKS = 16
"""Ranks whose values are listed as evidence."""
_OWN = {
    Origin.LAUNCH: "compute time",
    Origin.JOB: "own time (all but waits, transfers and loading)",
    Origin.TRACE: "own time (all but waits, transfers and loading)",
}
"""What ``Signals.compute`` is, by where the signals are from: a recording's includes host code
between operators, which its table of ranks has apart."""
_APART = {
    Origin.LAUNCH: "without gradient synchronization",
    Origin.JOB: "while no collective is under way",
    Origin.TRACE: "while no collective transfers",
}
"""When a rank's compute is undisturbed by communication, by where the signals are from."""


def input_pipeline(signals: Signals, findings: tuple[Finding, ...]) -> Judgement:
    """Waits for data, on every rank or on one that the others wait for."""
    del findings
    data = signals.data_wait
    assert data is not None  # noqa: S101 - in `needs`
    means = signals.mean(data)
    advice = (
        "give the loader more workers, prefetch and pin; keep decoding and augmentation off the "
        "training process"
    )
    everyone = float(means.min())
    row = int(means.argmax())
    floor = max(COMPUTE_EXCESS * signals.step_seconds, everyone)
    enough = signals.trusted and data.shape[1] >= MIN_SAMPLES and signals.steps >= MIN_COMPARED
    if (
        len(data) > 1 and enough and means[row] > floor
    ):  # it cannot exceed the others by more than all its waiting
        mean, half = mean_interval((data[row] - median_of_others(data, row)).tolist())
        if mean > floor and half is not None and mean - half > 0:
            rank = signals.ranks[row]
            return Finding(
                kind=FindingKind.INPUT_PIPELINE,
                rank=rank,
                cost_percent=percent(mean, signals),
                cost_seconds=mean,
                confidence=Confidence.HIGH,
                summary=f"rank {rank} waits {format_seconds(float(means[row]))} a step for data, "
                f"the others {format_seconds(float(np.median(np.delete(means, row))))}; all wait "
                "for it",
                evidence=(f"{seconds_with_interval(mean, half)} more, over {signals.steps} steps",),
                advice=f"look at rank {rank}'s storage, its shard and its loader's cores; {advice}",
            )
    if everyone < INPUT_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.INPUT_PIPELINE,
        cost_percent=percent(everyone, signals),
        cost_seconds=everyone,
        confidence=high_if(signals.steps >= MIN_COMPARED, Confidence.LOW),
        summary=f"every rank waits at least {per_step(everyone, signals)} for data",
        evidence=(
            "mean wait by rank: "
            f"{', '.join(format_seconds(float(value)) for value in means[:_MAX_SHOWN_RANKS])}",
        ),
        advice=advice,
    )


def straggler(signals: Signals, findings: tuple[Finding, ...]) -> Judgement:
    """Over 20 collectives or steps: waits of ≥ 2 % of the step, compute time ≥ 3 % above the median
    of the others with an interval that excludes 0, and with more than two ranks more of the blame
    than chance gives. Then whether that can be trusted."""
    compute, wait, blame = signals.compute, signals.wait, signals.blame
    assert compute is not None and wait is not None and blame is not None  # noqa: S101 - in `needs`
    if any(item.kind is FindingKind.STRAGGLING_NODE for item in findings):
        return None
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    values, means = _own_samples(signals, compute)
    if values.shape[1] < MIN_SAMPLES:
        return "too few samples of each rank's compute time"
    row, fastest = int(np.argmax(means)), float(values.min(axis=0).mean())
    if means[row] - fastest < COMPUTE_EXCESS * fastest:
        return None  # it is even less above the median of the others
    of_rank = [item for item in findings if item.rank == signals.ranks[row]]
    if any(item.kind is FindingKind.INTERMITTENT_STRAGGLER for item in of_rank):
        return None
    others = median_of_others(values, row)
    excess, typical = values[row] - others, float(np.mean(others))
    mean, half = mean_interval(excess.tolist())
    caused = float(blame[row] * signals.mean(wait).sum() / (len(compute) - 1))
    late_data = sum(item.cost_seconds for item in of_rank)
    steady = mean - _paused(signals, row)
    cost = min(steady, caused)
    slow = half is not None and steady >= COMPUTE_EXCESS * typical and steady > half
    waited_for = cost >= COST_FLOOR * signals.step_seconds and _has_blame(blame, row)
    if not slow or not waited_for or mean < EXPLAINED_SHARE * late_data:
        return None
    quiet, unsynchronized = _quiet(signals, row, mean / typical), _unsynchronized(signals, row)
    if (doubt := _doubt(signals, row, excess, quiet, unsynchronized)) is not None:
        return doubt
    rank, share = signals.ranks[row], format_percent(float(blame[row]), 0)
    slow_rank = SlowRank(row, tuple(np.delete(np.arange(len(compute)), row).tolist()), mean)
    longer = (
        f"its {_OWN[signals.origin]} is {format_percent(mean / typical, 0)} longer than the others'"
    )
    where = slow_rank.where(signals) or longer
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"rank {rank} arrives {format_seconds(mean)} late at the collective ({share} of "
        f"waits); {where}",
        evidence=(
            f"{_OWN[signals.origin]} {format_seconds(float(means[row]))} a step against "
            f"{format_seconds(typical)} (median of the others): "
            f"{seconds_with_interval(mean, half or 0.0)} more, over {signals.steps} steps",
            *_quiet_evidence(signals, quiet),
            *_unsynchronized_evidence(signals, unsynchronized),
            *_host_evidence(signals, row, mean),
        ),
        advice=slow_rank.advice(signals, "the others'") + _record_again(signals),
    )


def _own_samples(signals: Signals, compute: Matrix) -> tuple[Matrix, SignalSeries]:
    """Samples of each rank's compute, and its mean; without pauses, which are a cause of their own,
    where there are windows."""
    if signals.windows is None:
        return compute, signals.mean(compute)
    blocks = _blocks(signals.windows.compute, signals.windows.steps)
    return blocks, np.asarray(blocks.mean(axis=1))


def _has_blame(blame: SignalSeries, row: int) -> bool:
    """Whether a rank has more of the blame than chance gives; of two ranks the slower one has
    all."""
    floor = min(BLAME_FLOOR, BLAME_OVER_CHANCE / len(blame))
    return len(blame) == 2 or bool(blame[row] >= floor)


def _record_again(signals: Signals) -> str:
    seconds = signals.steps * signals.step_seconds
    if signals.origin is Origin.LAUNCH or seconds >= LASTING_SECONDS:
        return ""
    return (
        f"; record again first: {format_seconds(seconds)} cannot tell a slow rank from a passing "
        "disturbance"
    )


def _paused(signals: Signals, row: int) -> float:
    """What a rank's rare long steps take of each step, where there are enough of them to be called
    pauses; 0 where windows leave them out."""
    pauses = signals.pauses
    if signals.windows is not None or pauses is None or max(pauses.count) < MIN_PAUSES:
        return 0.0
    return pauses.seconds_per_step * pauses.count[row] / max(pauses.count)


def _blocks(values: Matrix, steps: SignalSeries) -> Matrix:
    """Windows of steps as at most :data:`BLOCKS` parts of a run, each the mean over its steps."""
    parts = np.array_split(np.arange(values.shape[1]), min(BLOCKS, values.shape[1]))
    return np.stack(
        [np.average(values[:, part], axis=1, weights=steps[part]) for part in parts], axis=1
    )


def _doubt(
    signals: Signals,
    row: int,
    excess: SignalSeries,
    quiet: _Undisturbed | None,
    unsynchronized: _Undisturbed | None,
) -> str | None:
    """Why a rank that is slower in its steps, by ``excess``, is not called a straggler all the
    same."""
    rank, mean = signals.ranks[row], float(excess.mean())
    quarters = [float(part.mean()) for part in np.array_split(excess, 4) if len(part)]
    if min(quarters) < STEADY_SHARE * mean:  # a slow rank is slow in every part of a run
        parts = ", ".join(format_seconds(max(0.0, quarter)) for quarter in quarters)
        return (
            f"rank {rank} is slower by itself, but not steadily: {parts} a step from quarter to "
            "quarter"
        )
    if quiet is None and unsynchronized is None and signals.origin is Origin.LAUNCH:
        return (
            "no window without gradient synchronization was measured to check each rank's compute"
        )
    slower_in_phases = quiet is not None and quiet.slower
    if unsynchronized is not None and not unsynchronized.slower and not slower_in_phases:
        return (
            f"rank {rank} is {format_seconds(mean)} a step slower in training, but not "
            f"{_APART[signals.origin]} ({format_seconds(unsynchronized.mine)} against "
            f"{format_seconds(unsynchronized.others)})"
        )
    if unsynchronized is None and quiet is not None and not quiet.slower:
        return (
            f"rank {rank} is {format_seconds(mean)} a step slower, but not in its forward pass and "
            "optimizer"
        )
    return explained_by_processes(signals, row, mean)


def _quiet_evidence(signals: Signals, quiet: _Undisturbed | None) -> list[str]:
    if quiet is None or not quiet.slower or signals.origin is not Origin.LAUNCH:
        return []
    return [
        "forward pass and optimizer, while no gradient is in transfer: "
        f"{format_seconds(quiet.mine)} against {format_seconds(quiet.others)} a step"
    ]


def _unsynchronized_evidence(signals: Signals, unsynchronized: _Undisturbed | None) -> list[str]:
    if unsynchronized is None or not unsynchronized.slower:
        return []
    excess = unsynchronized.mine / unsynchronized.others - 1
    return [
        f"{_APART[signals.origin]} {format_seconds(unsynchronized.mine)} against "
        f"{format_seconds(unsynchronized.others)} a step ({format_change(excess)})"
    ]


def _host_evidence(signals: Signals, row: int, excess: float) -> list[str]:
    if signals.host_bound is None:
        return []
    host = float(signals.host_bound[row] - np.median(np.delete(signals.host_bound, row)))
    if host <= EXPLAINED_SHARE * excess:
        return []
    where = "between operators, not in them"
    if signals.on_device:
        where = "with the device waiting for the host"
    return [f"{format_seconds(host)} of it are spent {where}"]


def pauses(signals: Signals, findings: tuple[Finding, ...]) -> Judgement:
    """Rare long steps, and whether they are garbage collections."""
    del findings
    pauses = signals.pauses
    assert pauses is not None  # noqa: S101 - in `needs`
    cost, most = pauses.seconds_per_step, max(pauses.count)
    collection = pauses.collection_seconds_per_step
    if most < MIN_PAUSES or cost < PAUSE_FLOOR * signals.step_seconds:
        return None
    row, chance = _rank_with_all(pauses)
    if row is not None and explained_by_processes(signals, row, cost) is not None:
        row = None
    by_collection = collection is not None and collection > EXPLAINED_SHARE * cost
    evidence = [_long_steps_by_rank(signals, pauses)]
    if collection is not None:
        evidence.append(f"garbage collection: {format_seconds(collection)} a step")
    rank, certain = None, True
    where, here = f"on the rank with most) cost {format_seconds(cost)} a step on average", ""
    if row is not None:
        rank, certain = signals.ranks[row], chance <= CERTAIN_CHANCE
        here = f" on rank {rank} or its host only"
        where = (
            f"on rank {rank}, nearly none on the others) cost {format_seconds(cost)} a step on "
            "average, and all wait"
        )
    cause = "something other than garbage collection"
    advice = (
        f"look for what runs now and then{here}: checkpoints, logging, evaluation, other "
        "processes, periodic jobs"
    )
    if collection is None:
        cause = "a cause that was not recorded"
    elif by_collection:
        cause = "Python's garbage collection"
        advice = (
            "call gc.freeze() after set-up and collect at a fixed interval on all ranks together"
        )
    return Finding(
        kind=FindingKind.PAUSES,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=high_if(
            certain and (by_collection or most >= CERTAIN_PAUSES), Confidence.MEDIUM
        ),
        summary=f"rare long steps ({most} of {signals.steps} {where}, from {cause}",
        evidence=tuple(evidence),
        advice=advice,
    )


def _long_steps_by_rank(signals: Signals, pauses: Pauses) -> str:
    counts = [f"{rank}: {count}" for rank, count in zip(signals.ranks, pauses.count, strict=True)]
    return f"long steps by rank: {', '.join(counts)}"


def _rank_with_all(pauses: Pauses) -> tuple[int | None, float]:
    """The row of the rank on which nearly all pauses fall, where chance rarely does that; and
    this chance."""
    ranks = len(pauses.count)
    if pauses.by_rank is None or ranks == 1 or not sum(pauses.by_rank):
        return None, 1.0
    row = int(np.argmax(pauses.by_rank))
    share = pauses.by_rank[row] / sum(pauses.by_rank)
    here = pauses.count[row]
    total = round(here / share)  # slight ones of other ranks count for what they cost
    # Of `total` pauses that fall on ranks at random, `here` or more on any one of them.
    chance = ranks * sum(
        math.comb(total, count) * (ranks - 1) ** (total - count) / ranks**total
        for count in range(here, total + 1)
    )
    if share < SAME_RANK_SHARE or chance > SAME_RANK_CHANCE:
        return None, chance
    return row, chance


def load_imbalance(signals: Signals, findings: tuple[Finding, ...]) -> Judgement:
    """Waiting that is nobody's in particular."""
    wait, blame = signals.wait, signals.blame
    assert wait is not None and blame is not None  # noqa: S101 - in `needs`
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    named = sorted(
        {signals.ranks.index(finding.rank) for finding in findings if finding.rank is not None}
    )
    left = float(signals.mean(wait).mean()) * float(
        1 - blame[named].sum()
    )  # the slowest of a step minus the mean
    left -= sum(
        item.cost_seconds
        for item in findings
        if item.kind is FindingKind.PAUSES and item.rank is None
    )
    top = int(blame.argmax())
    if left < IMBALANCE_FLOOR * signals.step_seconds or (
        not named and blame[top] > IMBALANCE_TOP_BLAME
    ):
        return None
    return Finding(
        kind=FindingKind.LOAD_IMBALANCE,
        cost_percent=percent(left, signals),
        cost_seconds=left,
        confidence=Confidence.MEDIUM,
        summary=f"ranks wait {format_seconds(left)} a step for one another, and take turns at "
        "being late",
        evidence=(
            "last to arrive, share of waiting: "
            + ", ".join(
                f"rank {rank}: {format_percent(float(share), 0)}"
                for rank, share in zip(signals.ranks, blame, strict=True)
            ),
        ),
        advice="look for what makes ranks late in turn: other processes on their cores, clocks, "
        "or samples that differ in size (give every rank the same amount of work in a step)",
    )


@dataclass(frozen=True)
class _Undisturbed:
    """A rank's compute that communication does not disturb, against the median of the others'.
    ``slower``: by enough to confirm a straggler, and beyond noise."""

    mine: float
    others: float
    slower: bool


def _quiet(signals: Signals, row: int, relative: float) -> _Undisturbed | None:
    """Of all steps, the phases in which nothing is in transfer. A rank that is slower as a whole is
    slower there by the same share (``relative``), one that has extra work there by more: by half of
    that share at least, and by 10 %."""
    windows = signals.windows
    if windows is None or windows.quiet is None or len(windows) < MIN_SAMPLES:
        return None
    blocks = _blocks(windows.quiet, windows.steps)
    others = median_of_others(blocks, row)
    mean, half = mean_interval((blocks[row] - others).tolist())
    typical = float(others.mean())
    enough = mean >= max(QUIET_EXCESS, EXPLAINED_SHARE * relative) * typical
    return _Undisturbed(
        float(blocks[row].mean()), typical, enough and half is not None and mean > half
    )


def _unsynchronized(signals: Signals, row: int) -> _Undisturbed | None:
    """By medians: one pass that something interrupted is one of twelve, and would widen an interval
    of the mean beyond what is looked for."""
    series_by_rank = signals.unsynchronized
    if series_by_rank is None or any(len(series) < MIN_SAMPLES for series in series_by_rank):
        return None
    medians = [float(np.median(series)) for series in series_by_rank]
    others = float(np.median(np.delete(medians, row)))
    least = [
        _least_shift(series_by_rank[row], series)
        for index, series in enumerate(series_by_rank)
        if index != row
    ]
    slower = float(np.median(least)) > 0 and medians[row] - others >= COMPUTE_EXCESS * others
    return _Undisturbed(medians[row], others, slower)


def _least_shift(mine: SignalSeries, theirs: SignalSeries) -> float:
    """By how much ``mine`` are longer at least: the lower end of the 95 % interval of the shift
    between two samples (Hodges and Lehmann's, from the normal approximation of Mann and Whitney's
    test), which no outlier moves."""
    first, second = len(mine), len(theirs)
    place = max(
        0, int(first * second / 2 - 1.96 * math.sqrt(first * second * (first + second + 1) / 12))
    )
    return float(np.partition(np.subtract.outer(mine, theirs).ravel(), place)[place])
