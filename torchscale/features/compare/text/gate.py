"""By which thresholds a comparison was judged, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.headlines import BLIND
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.text.calibration import format_rate
from torchscale.features.compare.text.result import METRIC_LABELS
from torchscale.report.values import shortened
from torchscale.util.units import format_percent
from torchscale.util.words import listed, plural

GATE = "Gate: "
"""What :func:`gate_sentences` begin with."""


def gate_sentences(pair: Pair, metrics: Sequence[Metric], *, calibrated: bool) -> Iterator[str]:
    """By which thresholds a pair was judged, where its reference is calibrated.

    Args:
        pair: The pair.
        metrics: What decides; empty for the headline of each cell.
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
    decided = pair.decided_by(metrics)
    limits = [change.limit for _, change in decided if change.limit is not None]
    if not limits:
        yield (
            f"{GATE}--threshold {format_percent(pair.threshold)}: the calibration of "
            f"{shortened(pair.reference.name)} has none of what decides here."
        )
        return
    yield (
        f"{GATE}cell thresholds of {_range(limits)} calibrated from "
        f"{plural(calibration.runs, 'A/A run')}: {format_rate(calibration)}."
    )
    blind = [
        f"{METRIC_LABELS[one.metric]} {format_percent(one.limit)}"
        for one in pair.overall_by(metrics)
        if one.limit is not None and one.limit > BLIND
    ]
    if blind:
        yield (
            f"It does not see a loss of {format_percent(BLIND)}: the threshold over all cells is "
            f"{listed(blind)}."
        )


def _range(limits: Sequence[float]) -> str:
    least, most = format_percent(min(limits)), format_percent(max(limits))
    if least == most:
        return least
    return f"{least.removesuffix(' %')} to {most}"
