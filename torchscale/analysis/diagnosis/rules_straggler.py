"""A rank that computes longer than the others in every step, and that they wait for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    BLAME,
    COMPUTE,
    EARLIER,
    WAIT,
    Earlier,
    Judgement,
    not_staged,
    rule,
    several_ranks,
)
from torchscale.analysis.diagnosis.rules_pauses import MIN_PAUSES
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    EXPLAINED_SHARE,
    MIN_SAMPLES,
    beyond_even_share,
    cannot_name,
    comes_back,
    explained_by_processes,
    percent,
)
from torchscale.analysis.diagnosis.signals import Matrix, SignalOrigin, Signals, SignalSeries
from torchscale.analysis.diagnosis.slow_rank import SlowRank
from torchscale.analysis.diagnosis.undisturbed import (
    APART,
    COMPUTE_EXCESS,
    Undisturbed,
    quiet_evidence,
    quiet_phases,
    run_blocks,
    unsynchronized_evidence,
    unsynchronized_passes,
)
from torchscale.analysis.stats.estimate import Estimate
from torchscale.analysis.stats.peers import outliers_among_peers
from torchscale.analysis.stats.series import is_steady, quarter_means
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

BLAME_FLOOR = 0.5
"""Share of all waiting for which a straggler arrives last, with three ranks. With two the share
says nothing: one of them is always last."""
BLAME_OVER_CHANCE = 1.5
"""The same with more ranks: ranks that only scatter have 1 ÷ ranks each. Four ranks on two cores
scatter by as much as a rank that is 2 ms slower in 40 ms makes them wait, and it has 0.41 to 0.43
of the blame."""
LASTING_SECONDS = 10.0
"""A recording shorter than this may show a passing disturbance only: on a shared host with two
cores, one of them ran 30 % slower for 2.5 s of 12, and the guest's counters (steal, other
processes) showed nothing."""
ESTIMATED_FLOOR = 0.1
"""Share of waits that is an estimate, from which on it is told: less is within their interval."""
_OWN = {
    SignalOrigin.LAUNCH: "compute time",
    SignalOrigin.JOB: "own time (all but waits, transfers and loading)",
    SignalOrigin.TRACE: "own time (all but waits, transfers and loading)",
}
"""What ``Signals.compute`` is, by where the signals are from: a recording's includes host code
between operators, which its table of ranks has apart."""


@rule(FindingKind.STRAGGLER, COMPUTE, WAIT, BLAME, EARLIER, where=(several_ranks, not_staged))
def straggler(
    signals: Signals, compute: Matrix, wait: Matrix, blame: SignalSeries, earlier: Earlier
) -> Judgement:
    """Find a straggler over at least 20 collectives or steps: waits of ≥ 2 % of the step, compute
    time ≥ 3 % above the median of the others with an interval that excludes 0, and with more than
    two ranks more of the blame than chance gives. Then judge whether that can be trusted."""
    if any(item.kind is FindingKind.STRAGGLING_NODE for item in earlier):
        return None
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    values = _own_samples(signals, compute)
    if values.shape[1] < MIN_SAMPLES:
        return "too few samples of each rank's compute time"
    outliers = outliers_among_peers(values, COMPUTE_EXCESS)
    if not outliers:
        return None
    slowest = outliers[0]
    row, mean, excess = slowest.row, slowest.excess.value, slowest.samples
    of_rank = [item for item in earlier if item.rank == signals.ranks[row]]
    if any(item.kind is FindingKind.INTERMITTENT_STRAGGLER for item in of_rank):
        return None
    caused = float(blame[row] * signals.mean(wait).sum() / (len(compute) - 1))
    late_data = sum(item.cost_seconds for item in of_rank)
    paused = _paused(signals, row)
    steady, least = mean - paused, slowest.excess.bounds[0] - paused
    cost = min(steady, caused)
    slow = steady >= COMPUTE_EXCESS * slowest.others and least > 0
    to_blame = _has_blame(_blame_beside_experts(signals, blame, wait), row)
    waited_for = cost >= COST_FLOOR * signals.step_seconds and to_blame
    is_told = comes_back(earlier, signals.ranks[row], cost)
    if is_told or not (slow and waited_for) or _is_explained(signals, mean, cost, late_data):
        return None
    quiet = quiet_phases(signals, row, mean / slowest.others)
    unsynchronized = unsynchronized_passes(signals, row)
    if (doubt := _doubt(signals, row, excess, quiet, unsynchronized)) is not None:
        return doubt
    rank = signals.ranks[row]
    slow_rank = SlowRank(row, tuple(np.delete(np.arange(len(compute)), row).tolist()), mean)
    late = _Late(row, format_percent(float(blame[row]), 0), slowest.excess)
    if signals.origin is SignalOrigin.LENGTHS:
        summary, excess_evidence = _by_lengths(signals, late, wait)
    else:
        summary, excess_evidence = _by_own_time(signals, late, slowest.mine, slowest.others)
        summary += slow_rank.where(signals) or late.longer(signals, slowest.others)
    again = _record_again(signals)
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM if again else Confidence.HIGH,
        summary=summary,
        evidence=(
            excess_evidence,
            *quiet_evidence(signals, quiet),
            *unsynchronized_evidence(signals, unsynchronized),
            *_host_evidence(signals, row, mean),
        ),
        advice=slow_rank.advice(signals, "the others'") + again,
    )


@dataclass(frozen=True)
class _Late:
    """A straggler's row, its share of all waits in words, and the seconds a step by which it is
    late."""

    row: int
    share: str
    excess: Estimate

    def measured(self, signals: Signals) -> str:
        """``6.00 ms (5.80 to 6.20 ms) more, over 400 steps``."""
        return f"{self.excess.text(format_seconds)} more, over {signals.steps} steps"

    def longer(self, signals: Signals, typical: float) -> str:
        """How much longer its own time is than ``typical`` seconds."""
        own = _OWN[signals.origin]
        return (
            f"its {own} is {format_percent(self.excess.value / typical, 0)} longer than the others'"
        )


def _by_lengths(signals: Signals, late: _Late, wait: Matrix) -> tuple[str, str]:
    """Summary and evidence from how long ranks wait in collectives on their devices."""
    rank, waits = signals.ranks[late.row], signals.mean(wait)
    others = float(np.median(np.delete(waits, late.row)))
    about, how = "", "what of it compute hides is not known"
    if signals.estimated_share >= ESTIMATED_FLOOR:
        least = format_seconds(late.excess.value * (1 - signals.estimated_share))
        about = "about "
        how = f"{least} of it are seen, the rest is estimated: later collectives hide it"
    return (
        f"the others wait {about}{format_seconds(late.excess.value)} a step for rank {rank} in "
        f"collectives ({late.share} of waits)",
        f"waits, by the lengths of collectives: {format_seconds(float(waits[late.row]))} a step on "
        f"rank {rank}, {format_seconds(others)} on the others (median): {late.measured(signals)}; "
        f"{how}",
    )


def _by_own_time(signals: Signals, late: _Late, mine: float, typical: float) -> tuple[str, str]:
    """Beginning of the summary and evidence from each rank's own time: seconds a step of the rank,
    and of the others."""
    rank, own = signals.ranks[late.row], _OWN[signals.origin]
    return (
        f"rank {rank} arrives {format_seconds(late.excess.value)} late at the collective "
        f"({late.share} of waits); ",
        f"{own} {format_seconds(mine)} a step against {format_seconds(typical)} (median of the "
        f"others): {late.measured(signals)}",
    )


def _is_explained(signals: Signals, late: float, cost: float, late_data: float) -> bool:
    """Whether late data is why a rank is late; seconds a step. By lengths it is late for whatever
    reason, and elsewhere by what it does beside loading."""
    if signals.origin is SignalOrigin.LENGTHS:
        return late_data >= EXPLAINED_SHARE * cost
    return late < EXPLAINED_SHARE * late_data


def _own_samples(signals: Signals, compute: Matrix) -> Matrix:
    """Samples of each rank's compute; without pauses, which are a cause of their own, where there
    are windows."""
    if signals.windows is None:
        return compute
    return run_blocks(signals.windows.compute, signals.windows.steps)


def _blame_beside_experts(signals: Signals, blame: SignalSeries, wait: Matrix) -> SignalSeries:
    """The blame for all waiting but that for tokens that the experts of a rank have beyond an even
    share."""
    experts = signals.experts
    if experts is None:
        return blame
    beyond = signals.mean(beyond_even_share(experts.tokens, experts.seconds))
    caused = blame * float(signals.mean(wait).sum())
    left = np.maximum(caused - np.maximum(beyond, 0.0) * (len(blame) - 1), 0.0)
    return np.asarray(left / max(float(left.sum()), 1e-12))


def _has_blame(blame: SignalSeries, row: int) -> bool:
    """Whether a rank has more of the blame than chance gives; of two ranks the slower one has
    all."""
    floor = min(BLAME_FLOOR, BLAME_OVER_CHANCE / len(blame))
    return len(blame) == 2 or bool(blame[row] >= floor)


def _record_again(signals: Signals) -> str:
    seconds = signals.steps * signals.step_seconds
    if signals.origin is not SignalOrigin.TRACE or seconds >= LASTING_SECONDS:
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


def _doubt(
    signals: Signals,
    row: int,
    excess: SignalSeries,
    quiet: Undisturbed | None,
    unsynchronized: Undisturbed | None,
) -> str | None:
    """Why a rank that is slower in its steps, by ``excess``, is not called a straggler all the
    same."""
    rank, mean = signals.ranks[row], float(excess.mean())
    if not is_steady(excess):  # a slow rank is slow in every part of a run
        parts = ", ".join(format_seconds(max(0.0, each)) for each in quarter_means(excess))
        return (
            f"rank {rank} is slower by itself, but not steadily: {parts} a step from quarter to "
            "quarter"
        )
    if quiet is None and unsynchronized is None and signals.origin is SignalOrigin.LAUNCH:
        return (
            "no window without gradient synchronization was measured to check each rank's compute"
        )
    slower_in_phases = quiet is not None and quiet.slower
    if unsynchronized is not None and not unsynchronized.slower and not slower_in_phases:
        return (
            f"rank {rank} is {format_seconds(mean)} a step slower in training, but not "
            f"{APART[signals.origin]} ({format_seconds(unsynchronized.mine)} against "
            f"{format_seconds(unsynchronized.others)})"
        )
    if unsynchronized is None and quiet is not None and not quiet.slower:
        return (
            f"rank {rank} is {format_seconds(mean)} a step slower, but not in its forward pass and "
            "optimizer"
        )
    return explained_by_processes(signals, row, mean)


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
