"""Predictions as JSON for other programs."""

from __future__ import annotations

from torchscale.features.decide.forecast.export_schema import (
    ExposureExport,
    MeasuredPointExport,
    PredictionExport,
    PredictionsExport,
)
from torchscale.features.decide.forecast.page import LAW, PredictionReport
from torchscale.features.decide.forecast.series import latency_between_nodes
from torchscale.schema.exports.base import exported


def prediction_json(report: PredictionReport) -> str:
    """Every prediction, what it rests on, and why others are missing."""
    document = PredictionsExport(
        predictions=tuple(
            exported(PredictionExport, one, law=LAW, unit=outcome.series.unit)
            for outcome in report.outcomes
            for one in outcome.predictions
        ),
        refused=report.refused,
        measured=tuple(
            exported(
                MeasuredPointExport,
                point,
                series=outcome.series.name,
                launches=len(point.launches),
            )
            for outcome in report.outcomes
            for point in outcome.series.points
        ),
        exposure=tuple(
            ExposureExport(
                series=outcome.series.name,
                gpus=outcome.exposed_from,
                latency_share=None
                if (found := latency_between_nodes(outcome.series.points)) is None
                else found[1].share,
            )
            for outcome in report.outcomes
        ),
        price=report.price,
        notes=report.notes,
    )
    return document.model_dump_json(indent=1)
