"""Rounds of an acceptance: which of them count, and whether there are enough."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.stats.estimate import geometric_half_width
from torchscale.analysis.training.flags import OTHER_PROCESSES_LIMIT
from torchscale.features.validate.acceptance.limits import DISK
from torchscale.schema.node.acceptance import AcceptanceRun, Conditions, Series
from torchscale.util.units import format_percent

NARROW = 0.02
"""Half of a figure's 95 % interval from which on there is no need for further rounds: a loss of 5 %,
the least that a baseline calls low, then lies more than twice as far off."""
ROUNDS_TO_STOP = 5
"""Rounds before narrow intervals end an acceptance: three may agree by chance."""


def disturbance(conditions: Conditions) -> str:
    """What of other programs disturbed a round; empty where nothing did."""
    share = conditions.foreign_share or 0.0
    if share > OTHER_PROCESSES_LIMIT:
        return f"other processes had {format_percent(share, 0)} of the cores' time"
    if conditions.shared_gpus:
        return "other processes computed on its GPUs"
    return ""


def undisturbed(run: AcceptanceRun) -> tuple[int, ...]:
    """Places of the rounds that figures are judged by."""
    return tuple(it for it, each in enumerate(run.rounds) if not disturbance(each.conditions))


def without_disturbed(run: AcceptanceRun) -> AcceptanceRun:
    """Its undisturbed rounds alone."""
    kept = undisturbed(run)
    series = [
        each.model_copy(update={"values": tuple(each.values[it] for it in kept)})
        for each in run.series
    ]
    rounds = tuple(run.rounds[it] for it in kept)
    return run.model_copy(update={"rounds": rounds, "series": tuple(series)})


def is_narrow(run: AcceptanceRun, least: int = ROUNDS_TO_STOP) -> bool:
    """Whether every figure's interval is narrow enough to judge, over ``least`` undisturbed rounds
    or more."""
    rounds = undisturbed(run)
    if len(rounds) < max(least, ROUNDS_TO_STOP):
        return False
    widest = widest_interval(run)
    return widest is not None and widest[1] <= NARROW


def widest_interval(run: AcceptanceRun) -> tuple[Series, float] | None:
    """The figure with the widest interval over the undisturbed rounds, and half of it; ``None``
    where a figure has none yet. The disk is left out: its noise is that of everybody who uses it,
    and more rounds do not make it narrow."""
    rounds = undisturbed(run)
    widths = []
    for series in run.series:
        if series.figure.startswith(DISK):
            continue
        values = values_in(series, rounds)
        half = geometric_half_width(values)
        if half is None:
            return None
        widths.append((half, series))
    if not widths:
        return None
    half, series = max(widths, key=lambda width: width[0])
    return series, half


def values_in(series: Series, rounds: Sequence[int]) -> list[float]:
    """Its values of these rounds, without those that were not measured."""
    found = [series.values[it] for it in rounds]
    return [value for value in found if value is not None]
