"""A plan as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from torchscale.plan.duration import CellProgress, Estimate
from torchscale.plan.expand import Plan
from torchscale.plan.forecast import Forecast


def plan_json(
    plan: Plan, forecast: Forecast, progress: Sequence[CellProgress], estimate: Estimate
) -> str:
    """The plan for machines: each cell with its id, the reason if it is skipped, and its launches
    done and left."""
    of_cell = {item.cell.id: item for item in progress}
    cells = [
        {
            "cell_id": entry.cell.id,
            "skip_reason": entry.skip_reason,
            "launches_done": None if (item := of_cell.get(entry.cell.id)) is None else item.done,
            "launches_left": None if item is None else item.left,
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
