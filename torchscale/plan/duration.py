"""What is left of a sweep, and about how long it will take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from torchscale.config.choices import Rerun
from torchscale.config.sections.benchmark import BenchmarkSettings
from torchscale.plan.expand import Plan
from torchscale.plan.kinds import plan_kind
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.state import State


@dataclass(frozen=True)
class LaunchEnd:
    """How an earlier launch ended, and the seconds it took."""

    state: State
    seconds: float


@dataclass(frozen=True)
class CellProgress:
    """A cell's launches.

    Attributes:
        cell: The cell.
        done: Launches that ended before and are kept.
        left: Launches to run.
        seconds: Mean of the earlier launches that completed; ``None`` without any.
    """

    cell: AnyCell
    done: int
    left: int
    seconds: float | None = None


@dataclass(frozen=True)
class DurationEstimate:
    """About how long a sweep takes.

    Attributes:
        low: Seconds with the shortest warm-up and measurement everywhere.
        high: Seconds with both at their limit.
        from_earlier: Launches whose time is that of an earlier launch of their cell.
        long_steps: Cells of which a single step takes longer than warm-up or measurement may, and
            the least seconds of such a step.
    """

    low: float
    high: float
    from_earlier: int
    long_steps: Mapping[str, float]


def runs_again(state: State, rerun: Rerun | None) -> bool:
    """Whether a launch that ended so is launched again."""
    if rerun is Rerun.ALL or state in (State.INTERRUPTED, State.NODE_LOST):
        return True
    return rerun is Rerun.FAILED and state is not State.OK


def cell_progress(
    cell: AnyCell, ended: Mapping[int, LaunchEnd], repeats: int, rerun: Rerun | None = None
) -> CellProgress:
    """What is done and left of a cell. ``ended`` has the launches that ended before, by their
    number from 0."""
    kept = sum(
        not runs_again(ended[launch].state, rerun) for launch in range(repeats) if launch in ended
    )
    seconds = [end.seconds for end in ended.values() if end.state is State.OK]
    return CellProgress(cell, kept, repeats - kept, mean(seconds) if seconds else None)


def estimate_seconds(
    progress: Sequence[CellProgress],
    settings: BenchmarkSettings,
    timeout_seconds: float,
    plan: Plan,
) -> DurationEstimate:
    """The time of the launches that are left.

    Args:
        progress: Progress of every cell to run.
        settings: Settings for the time budget of a cell.
        timeout_seconds: Time after which a launch is ended.
        plan: The plan, for the peak rate of its devices: a step cannot be faster.
    """
    low = high = 0.0
    from_earlier = 0
    long_steps: dict[str, float] = {}
    for item in progress:
        if item.left and item.seconds is not None:
            bounds = item.seconds, item.seconds
            from_earlier += item.left
        else:
            bounds, step = _launch_seconds(item.cell, settings.cell_seconds, timeout_seconds, plan)
            if step is not None and item.left:
                long_steps[item.cell.id] = step
        low, high = low + item.left * bounds[0], high + item.left * bounds[1]
    return DurationEstimate(low, high, from_earlier, long_steps)


def _launch_seconds(
    cell: AnyCell, budget: float | None, timeout: float, plan: Plan
) -> tuple[tuple[float, float], float | None]:
    """The bounds of one launch, and the least seconds of a step where that is longer than the rule
    assumes."""
    kind = plan_kind(cell.kind)
    low, high = kind.expected_seconds(cell)
    if budget is not None:
        low, high = min(low, budget), min(high, budget)
    step = kind.least_step_seconds(cell, plan.peak_flops)
    if 2 * step <= high:  # a warm-up and a measurement of one step each
        return (min(max(low, 2 * step), timeout), min(high, timeout)), None
    return (min(2 * step, timeout), timeout), step
