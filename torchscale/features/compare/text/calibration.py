"""What a calibrated baseline says of its thresholds, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchscale.features.compare.analysis.pair import BLIND, Pair
from torchscale.features.compare.text.result import METRIC_LABELS
from torchscale.report.text.times import format_days
from torchscale.report.values import shortened
from torchscale.schema.run.calibration import Calibration
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural

GATE = "Gate: "
"""What :func:`gate_sentences` begin with."""


def format_rate(calibration: Calibration) -> str:
    """``one false alarm a year at 10 runs a day``, ``one false alarm in 20 runs``."""
    count, _, period = calibration.false_alarms.partition("/")
    alarms = "one false alarm" if count == "1" else f"{count} false alarms"
    if period.isdecimal():
        return f"{alarms} in {period} runs"
    return f"{alarms} a {period} at {calibration.runs_per_day:g} runs a day"


def gate_sentences(pair: Pair, *, calibrated: bool) -> Iterator[str]:
    """By which thresholds a pair was judged, where its reference is calibrated.

    Args:
        pair: The pair.
        calibrated: Whether the thresholds of the reference decide, and not ``--threshold``.
    """
    calibration = pair.reference.calibration
    if calibration is None:
        return
    if not calibrated:
        yield (
            f"{GATE}--threshold {format_percent(pair.threshold)}, in place of the calibrated "
            f"thresholds of {shortened(pair.reference.name)}."
        )
        return
    changes = [change for cell in pair.cells for change in cell.changes]
    limits = [change.limit for change in changes if change.limit is not None]
    if not limits:
        yield (
            f"{GATE}--threshold {format_percent(pair.threshold)}: the calibration of "
            f"{shortened(pair.reference.name)} has none of the cells that were compared on its device."
        )
        return
    yield (
        f"{GATE}cell thresholds of {_range(limits)} calibrated from "
        f"{plural(calibration.runs, 'A/A run')}: {format_rate(calibration)}."
    )
    blind = [
        f"{METRIC_LABELS[one.metric]} {format_percent(one.limit)}"
        for one in pair.overall
        if one.limit is not None and one.limit > BLIND
    ]
    if blind:
        yield (
            f"It does not see a loss of {format_percent(BLIND)}: the threshold over all cells is "
            f"{listed(blind)}."
        )


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


def _range(limits: Sequence[float]) -> str:
    least, most = format_percent(min(limits)), format_percent(max(limits))
    if least == most:
        return least
    return f"{least.removesuffix(' %')} to {most}"
