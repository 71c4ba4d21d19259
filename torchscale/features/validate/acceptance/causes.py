"""Host or set-up: what a low or flapping figure is due to, as far as the rounds tell.

What moves with the container, the environment or the driver's settings is set-up; what stays with a
device, while the others of its node work in the same set-up, is the host. Where neither shows, it is
unclear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchscale.features.validate.acceptance.estimates import Mode
from torchscale.features.validate.acceptance.limits import DISK
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.acceptance import (
    AcceptanceRun,
    Baseline,
    Cause,
    Conditions,
    LimitKind,
    Series,
)
from torchscale.util.units import format_percent

HELD_BACK = 0.02
"""Share of the processors' time that a quota takes before it explains anything: less is within the
noise of a round."""
MAX_THROTTLED_SHARE = 0.05
"""As of a burn-in: a single reading may show a short reason."""
LOWER = 0.02
"""A clock, a power limit or a quota that is this much lower is another one."""
RAISE_QUOTA = "raise the CPU quota of the container or job"


@dataclass(frozen=True)
class Explanation:
    """A cause, what it rests on, and what to do first."""

    cause: Cause
    because: str
    action: str


@dataclass(frozen=True)
class CauseQuestion:
    """A figure whose cause is asked for.

    Attributes:
        series: The figure.
        rounds: Places of the rounds that it was judged by.
        modes: Its two groups of rounds, where it flaps.
        kind: The limit that it misses; ``None`` where it only flaps.
        others: What of the same kind is not slow, with its verb; empty where that is not known.
        usual_quota: CPUs of the quota that those others have: the same one explains no difference.
            ``None`` where they have none.
    """

    series: Series
    rounds: tuple[int, ...]
    modes: tuple[Mode, Mode] | None = None
    kind: LimitKind | None = None
    others: str = ""
    usual_quota: float | None = None


def explain(
    question: CauseQuestion,
    run: AcceptanceRun,
    baseline: Baseline | None,
    power_limits: Mapping[str, float],
) -> Explanation:
    """The cause of one figure.

    Args:
        question: The figure.
        run: All rounds.
        baseline: What it is held against, if there is one.
        power_limits: Watts of each GPU, by UUID.
    """
    conditions = [run.rounds[it].conditions for it in question.rounds]
    found = (
        _quota(question, conditions)
        or _lower_clocks(question, run)
        or _cores(conditions, question, baseline)
        or _far(question.series, conditions)
        or _settings_of_gpu(question.series, conditions, power_limits)
        or _other_set_up(question, run, baseline)
    )
    if found is not None:
        return found
    if question.others and question.kind is not None:
        because = f"{question.others} not slow in the same rounds"
        return Explanation(Cause.HOST, because, _action_of_host(question.series))
    # neighbours on the host and the hypervisor cannot be seen from here
    because = "nothing of the set-up that can be read explains it"
    return Explanation(Cause.UNCLEAR, because, "compare it with other nodes (--nnodes)")


def _quota(question: CauseQuestion, conditions: Sequence[Conditions]) -> Explanation | None:
    """The quota of the control group held processes back in the rounds that are slow."""
    held = [each.held_back_share or 0.0 for each in conditions]
    quotas = [each.quota_cpus for each in conditions if each.quota_cpus is not None]
    if question.modes is not None or not held or not quotas or max(held) < HELD_BACK:
        return None
    usual = question.usual_quota
    if usual is not None and min(quotas) >= usual * (1 - LOWER):
        return None
    mean = sum(held) / len(held)
    because = (
        f"the CPU quota of {min(quotas):.2f} CPUs held its processes back for "
        f"{format_percent(mean, 0)} of the processors' time"
    )
    if usual is not None:
        because += f"; most others have {usual:.2f}"
    return Explanation(Cause.SETUP, because, RAISE_QUOTA)


def known_splits(
    run: AcceptanceRun, rounds: Sequence[int]
) -> Iterator[tuple[frozenset[int], Explanation]]:
    """Rounds whose conditions are worse than those of the others, and what a figure that is slower
    in them is due to.

    Args:
        run: All rounds.
        rounds: Places of those that figures are judged by.
    """
    conditions = {it: run.rounds[it].conditions for it in rounds}
    held = frozenset(it for it, each in conditions.items() if _held_back(each))
    because = f"the CPU quota held its processes back in the {_slow(held)}, in no other"
    yield held, Explanation(Cause.SETUP, because, RAISE_QUOTA)
    cpus = {it: each.cpus for it, each in conditions.items() if each.cpus is not None}
    most = max(cpus.values(), default=0)
    few = frozenset(it for it, count in cpus.items() if count < most)
    because = f"the ranks could use fewer CPUs in the {_slow(few)}"
    yield few, Explanation(Cause.SETUP, because, "give the job the same CPUs all the time")


def _slow(rounds: Collection[int]) -> str:
    return f"{len(rounds)} slow round{'s' * (len(rounds) != 1)}"


def _lower_clocks(question: CauseQuestion, run: AcceptanceRun) -> Explanation | None:
    """Clocks of a flapping figure's GPU that were lower in all slow rounds than in any fast one."""
    if question.modes is None:
        return None
    slow, fast = ([run.rounds[it].conditions for it in mode.rounds] for mode in question.modes)
    clocks = [[_clock(each, question.series.uuids) for each in side] for side in (slow, fast)]
    if _apart(*clocks):
        because = "its clocks were lower in all slow rounds than in any fast one"
        return Explanation(Cause.UNCLEAR, because, "check power, cooling and application clocks")
    return None


def _cores(
    conditions: Sequence[Conditions], question: CauseQuestion, baseline: Baseline | None
) -> Explanation | None:
    if baseline is None or question.kind is not LimitKind.BASELINE:
        return None
    now = [each.cpus for each in conditions if each.cpus is not None]
    then = [
        each.conditions.cpus for each in baseline.run.rounds if each.conditions.cpus is not None
    ]
    if not now or not then or max(now) >= min(then):
        return None
    because = f"{max(now)} usable CPUs, the baseline had {min(then)}"
    return Explanation(Cause.SETUP, because, "give the container or job as many CPUs")


def _far(series: Series, conditions: Sequence[Conditions]) -> Explanation | None:
    if not any(uuid in each.far_uuids for each in conditions for uuid in series.uuids):
        return None
    because = "its rank ran on cores of another NUMA node"
    return Explanation(Cause.SETUP, because, "let the job use the cores next to the GPU")


def _settings_of_gpu(
    series: Series, conditions: Sequence[Conditions], power_limits: Mapping[str, float]
) -> Explanation | None:
    """Heat, and a lowered power limit; a GPU's alone."""
    for uuid in series.uuids:
        uses = [use for each in conditions for use in each.gpus if use.uuid == uuid]
        uses = [use for use in uses if was_throttled(use)]
        reasons = dict.fromkeys(reason for use in uses for reason in use.throttle_reasons or ())
        if reasons:
            because = f"it lowered its clocks: {', '.join(reasons)}"
            return Explanation(Cause.UNCLEAR, because, "check cooling and power")
        limit = power_limits.get(uuid)
        most = max(power_limits.values(), default=0.0)
        if limit is not None and limit < most * (1 - LOWER):
            because = f"its power limit is {limit:.0f} W, another GPU's {most:.0f} W"
            return Explanation(Cause.SETUP, because, "set the same power limit (nvidia-smi -pl)")
    return None


def _other_set_up(
    question: CauseQuestion, run: AcceptanceRun, baseline: Baseline | None
) -> Explanation | None:
    if baseline is None or question.kind is not LimitKind.BASELINE:
        return None
    names = sorted(run.versions.keys() | baseline.run.versions.keys())
    differing = [
        f"{name} {run.versions.get(name, 'none')} (then {baseline.run.versions.get(name, 'none')})"
        for name in names
        if run.versions.get(name) != baseline.run.versions.get(name)
    ]
    if not differing:
        return None
    because = f"other versions than in the baseline: {', '.join(differing)}"
    return Explanation(Cause.UNCLEAR, because, "measure it with the versions of the baseline")


def was_throttled(use: GpuUse) -> bool:
    """Whether a GPU lowered its clocks for heat or a fault for a part of a round that is more than a
    short reason."""
    share = use.throttled_share
    return bool(use.throttle_reasons) and (share is None or share > MAX_THROTTLED_SHARE)


def _held_back(conditions: Conditions) -> bool:
    return (conditions.held_back_share or 0.0) >= HELD_BACK


def _apart(slow: Sequence[float | None], fast: Sequence[float | None]) -> bool:
    """Whether every known value of the slow rounds is lower than any of the fast ones."""
    low = [value for value in slow if value is not None]
    high = [value for value in fast if value is not None]
    return bool(low) and bool(high) and max(low) < min(high) * (1 - LOWER)


def _clock(conditions: Conditions, uuids: Sequence[str]) -> float | None:
    clocks = [
        use.sm_clock_hertz
        for use in conditions.gpus
        if use.uuid in uuids and use.sm_clock_hertz is not None
    ]
    return min(clocks, default=None)


def _action_of_host(series: Series) -> str:
    if series.figure.startswith(DISK):
        return (
            "look at its health (smartctl -a), how full it is and who else uses it; then replace it"
        )
    if len(series.uuids) > 1:
        return "check the link between them: reseat the cards or cables (nvidia-smi nvlink -s)"
    if series.uuids:
        return "replace the GPU"
    return "have the host looked at"
