"""A comparison as JSON for other programs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.explanation import ExplainedPair
from torchscale.features.compare.analysis.judge import LEVEL
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.export_schema import (
    CalibrationExport,
    ComparisonExport,
    PairExport,
)
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.schema.exports.base import exported


def comparison_json(comparison: ComparisonReport) -> str:
    """A comparison with all its pairs, as JSON (``docs schema compare``)."""
    return comparison_export(comparison).model_dump_json(indent=1)


def comparison_export(comparison: ComparisonReport) -> ComparisonExport:
    """The whole comparison as it is published."""
    return exported(
        ComparisonExport,
        comparison,
        sides=(comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs)),
        level=LEVEL,
        calibration=_calibration(comparison),
        prices=comparison.prices or None,
        ranking=tuple(comparison.ranking),
        pairs=tuple(
            _pair(pair, comparison.metrics, why)
            for pair, why in itertools.zip_longest(comparison.pairs, comparison.why or ())
        ),
    )


def _calibration(comparison: ComparisonReport) -> CalibrationExport | None:
    calibration = comparison.pairs[0].reference.calibration
    if calibration is None:
        return None
    return exported(CalibrationExport, calibration, used=comparison.calibrated)


def _pair(pair: Pair, metrics: Sequence[Metric], why: ExplainedPair | None) -> PairExport:
    return exported(
        PairExport,
        pair,
        regressions=tuple(pair.regressions(metrics)),
        overall_regressions=tuple(pair.overall_regressions(metrics)),
        unclear=tuple(pair.unclear(metrics)),
        missing=tuple(cell.cell.cell.id for cell in pair.missing(metrics)),
        may_hide_loss=pair.may_hide_loss(metrics),
        why=why,
    )
