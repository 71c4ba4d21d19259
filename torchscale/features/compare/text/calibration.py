"""What a calibrated baseline says of its thresholds, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from torchscale.features.compare.analysis.headlines import BLIND
from torchscale.report.text.times import format_days
from torchscale.report.values import shortened
from torchscale.schema.run.calibration import Calibration
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural


def format_rate(calibration: Calibration) -> str:
    """``one false alarm a year at 10 runs a day``, ``one false alarm in 20 runs``."""
    count, _, period = calibration.false_alarms.partition("/")
    alarms = "one false alarm" if count == "1" else f"{count} false alarms"
    if period.isdecimal():
        return f"{alarms} in {period} runs"
    return f"{alarms} a {period} at {calibration.runs_per_day:g} runs a day"


def calibration_sentences(calibration: Calibration, launches: int) -> Iterator[str]:
    """What thresholds rest on, after a calibration.

    Args:
        calibration: The calibration.
        launches: Launches of a run.
    """
    hosts = f" on {listed([shortened(host) for host in calibration.hosts])}"
    days = format_days([calibration.first_at, calibration.last_at])
    yield (
        f"Calibrated from {plural(calibration.runs, 'A/A run')} of "
        f"{plural(launches, 'launch')}{hosts if calibration.hosts else ''}, {days}: "
        f"{format_rate(calibration)}, over {plural(calibration.figures, 'figure')} together."
    )
    for flag, runs in calibration.conditions.items():
        yield (
            f"{runs} of {plural(calibration.runs, 'run')} {'were' if runs > 1 else 'was'} {flag}. "
            "They count: later runs will be, too."
        )
    if calibration.first_at[:10] == calibration.last_at[:10]:
        yield (
            "All are of one day, so that what differs from day to day is not in the thresholds: "
            "calibrate again from runs of several days (--calibrate read)."
        )
    blind = _blind(calibration)
    if blind:
        yield (
            f"{plural(blind, 'threshold')} of {calibration.figures} "
            f"{'are' if blind > 1 else 'is'} above {format_percent(BLIND)}: this gate does not see a "
            "loss of a quarter there. More A/A runs, more launches a run (benchmark.repeats), a quieter "
            "machine or more false alarms (--false-alarms) make it narrower."
        )


def _blind(calibration: Calibration) -> int:
    thresholds = [one.threshold for one in (*calibration.cells, *calibration.overall)]
    return sum(threshold > BLIND for threshold in thresholds)
