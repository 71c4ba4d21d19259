"""A comparison as JSON for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.compare import LEVEL
from torchscale.features.compare.analysis.explanation import ExplainedCell, ExplainedPair
from torchscale.features.compare.analysis.operators import ComparedRecording, OperatorChange
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.export_schema import ComparisonExport, RankedSideExport
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.sections.ranking import RankedSide
from torchscale.util.optional import optional


def comparison_json(comparison: ComparisonReport) -> str:
    """A comparison with all its pairs, as JSON (``docs schema compare``)."""
    return comparison_export(comparison).model_dump_json(indent=1)


def comparison_export(comparison: ComparisonReport) -> ComparisonExport:
    """The whole comparison as it is published."""
    return ComparisonExport.model_validate(
        {
            "sides": (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs)),
            "threshold": comparison.threshold,
            "level": LEVEL,
            "prices": comparison.prices or None,
            "differences": comparison.differences,
            "left_out": comparison.left_out,
            "ranking": tuple(map(_ranked, comparison.ranking)),
            "pairs": tuple(
                _pair(pair, comparison.metrics) | {"why": why}
                for pair, why in zip(comparison.pairs, _whys(comparison), strict=True)
            ),
        }
    )


def _ranked(side: RankedSide) -> dict[str, object]:
    ranked: dict[str, object] = dict.fromkeys(RankedSideExport.model_fields)
    ranked |= {"name": side.name, "price": side.price}
    if side.speed is not None:
        ranked["speed_ratio"] = side.speed.ratio.value
    if side.cost is not None:
        ranked |= {
            "cells": side.cost.cells,
            "cost_ratio": side.cost.ratio.value,
            "cost_interval": side.cost.ratio.interval,
            "verdict": side.cost.verdict,
        }
    return ranked


def _pair(pair: Pair, metrics: Sequence[Metric]) -> dict[str, object]:
    return {
        "reference": pair.reference.name,
        "other": pair.other.name,
        "overall": pair.overall,
        "score": pair.score,
        "efficiency_score": pair.efficiency,
        "regressions": tuple(pair.regressions(metrics)),
        "overall_regressions": tuple(pair.overall_regressions(metrics)),
        "unclear": tuple(pair.unclear(metrics)),
        "missing": tuple(cell.cell.cell.id for cell in pair.missing(metrics)),
        "may_hide_loss": pair.may_hide_loss(metrics),
        "notes": pair.notes,
        "cells": pair.cells,
    }


def _whys(comparison: ComparisonReport) -> Sequence[dict[str, object] | None]:
    """Each pair explained; ``None`` where that was not asked for."""
    if not comparison.why:
        return [None] * len(comparison.pairs)
    return [_why(explained) for explained in comparison.why]


def _why(explained: ExplainedPair) -> dict[str, object]:
    return {
        "cells": tuple(map(_why_cell, explained.cells)),
        "without": tuple(
            {"cell_id": name, "reason": reason} for name, reason in explained.without.items()
        ),
        "recordings": tuple(map(recording_content, explained.recordings)),
    }


def recording_content(recording: ComparedRecording) -> dict[str, object]:
    """Two recordings, as :class:`RecordingExport` takes them."""
    content: dict[str, object] = {
        "label": recording.label,
        "problem": recording.problem,
        "before": None,
        "after": None,
        "operators": (),
        "collectives": (),
    }
    compared = recording.comparison
    if compared is None:
        return content
    return content | {
        "before": compared.before,
        "after": compared.after,
        "operators": tuple(map(_operator, compared.operators)),
        "collectives": tuple(map(_operator, compared.collectives)),
    }


def _operator(change: OperatorChange) -> dict[str, object]:
    return {
        "name": change.name,
        "fate": change.fate,
        "calls": (change.before.count, change.after.count),
        "before": change.before.seconds,
        "after": change.after.seconds,
        "difference": change.seconds,
    }


def _why_cell(cell: ExplainedCell) -> dict[str, object]:
    why, link = cell.why, cell.why.probe.link
    bounds = (why.disturbance.least, why.disturbance.most)
    return {
        "cell_id": why.cell.cell.cell.id,
        "other_cell_id": why.cell.other_id,
        "launches": why.launches,
        "step": why.step,
        "parts": why.parts,
        "ranks": why.ranks,
        "later_in": why.later_in,
        "outside": why.outside,
        "outside_parts": why.outside_parts,
        "conditions": why.disturbance.conditions,
        "disturbance": tuple(end if math.isfinite(end) else None for end in bounds),
        "probe": {
            "gradient_bytes": why.probe.gradient_bytes,
            "buckets": why.probe.buckets,
            "link_seconds": optional(lambda one: (one.before, one.after), link),
        },
        "changes": cell.changes,
        "causes": cell.causes,
    }
