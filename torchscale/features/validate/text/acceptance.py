"""An acceptance in lines: what its time can tell, and its rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchscale.features.validate.acceptance.rounds import NARROW, disturbance
from torchscale.schema.node.acceptance import AcceptanceRun, LimitKind, Power, Series
from torchscale.util.units import format_coarse_seconds, format_percent
from torchscale.util.words import plural

_AGAINST = {LimitKind.BASELINE: "baseline", LimitKind.PEERS: "devices or nodes beside"}
_MOST = 0.5


def power_lines(
    power: Power, others: Mapping[float, Power], *, has_baseline: bool
) -> Iterator[str]:
    """What the budget can tell, then what other budgets could. It is a prediction, and says so.

    Args:
        power: Of the budget that was given.
        others: Budget in seconds → what it could tell.
        has_baseline: Whether there is a baseline to hold it against.
    """
    source = f"from the noise of {power.measured} rounds"
    if not power.measured:
        source = "from default values, until round 2"
    yield (
        f"Prediction ({source}): about {plural(power.rounds, 'round')} of "
        f"{format_coarse_seconds(power.round_seconds)}. Smallest loss that is found with "
        f"{format_percent(power.probability, 0)} probability:"
    )
    yield f"  {'':24} {power.steadiest or 'steadiest figure':>20} {power.noisiest or 'noisiest figure':>20}"
    for kind in power.by_limit:
        against = _AGAINST[kind]
        if kind is LimitKind.BASELINE and not has_baseline:
            against += ", if there were one"
        yield f"  {against:24} {_loss(power.best[kind]):>20} {_loss(power.by_limit[kind]):>20}"
    for seconds, each in others.items():
        if LimitKind.BASELINE in each.by_limit and each.rounds != power.rounds:
            best, worst = each.best[LimitKind.BASELINE], each.by_limit[LimitKind.BASELINE]
            budget = f"… in {seconds / 60:.0f} min"
            yield f"  {budget:24} {_loss(best):>20} {_loss(worst):>20}"


def round_line(run: AcceptanceRun, left: float, widest: tuple[Series, float] | None) -> str:
    """``Round 4: 41 s, 12 min left; widest interval ±2.3 % (all-reduce)``."""
    last = run.rounds[-1]
    text = f"Round {len(run.rounds)}: {format_coarse_seconds(last.seconds)}, "
    text += f"{format_coarse_seconds(left)} left"
    if widest is not None:
        series, half = widest
        name = series.figure
        if series.part != "node":
            name += f" of {series.part}"
        text += f"; widest interval ±{_loss(half)} ({name}), ends at {format_percent(NARROW, 0)}"
    disturbed = disturbance(last.conditions)
    if disturbed:
        text += f"; disturbed: {disturbed}"
    for problem in last.problems:
        text += f"; failed: {problem}"
    return text


def _loss(share: float) -> str:
    """``6.3 %``; more than half of the rate is no finding."""
    if share > _MOST:
        return f"over {format_percent(_MOST, 0)}"
    return format_percent(share)
