"""A plan as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torchscale.plan.duration import CellProgress, DurationEstimate
from torchscale.plan.expand import Plan
from torchscale.plan.memory import Forecast

_NO_LAUNCHES = (None, None)
"""Launches of a cell that is skipped."""


def plan_json(
    plan: Plan, forecast: Forecast, progress: Sequence[CellProgress], estimate: DurationEstimate
) -> str:
    """The plan for machines: each cell with its id, the reason if it is skipped, and its launches
    done and left."""
    launches = {item.cell.id: (item.done, item.left) for item in progress}
    cells = [
        {
            "cell_id": entry.cell.id,
            "skip_reason": entry.skip_reason,
            "launches_done": launches.get(entry.cell.id, _NO_LAUNCHES)[0],
            "launches_left": launches.get(entry.cell.id, _NO_LAUNCHES)[1],
            "predicted_peak_bytes": forecast.peak_bytes(entry.cell),
            "predicted_to_fit": forecast.fits(entry.cell),
            **entry.cell.model_dump(mode="json"),
        }
        for entry in plan.cells
    ]
    content = {
        "plan_hash": plan.hash,
        "device": plan.device,
        "device_indices": plan.device_indices,
        "threads_per_rank": plan.threads_per_rank,
        "estimated_seconds": {"low": estimate.low, "high": estimate.high},
        "cells": cells,
    }
    return json.dumps(content, indent=1)
