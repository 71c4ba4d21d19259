"""A plan as JSON."""

from __future__ import annotations

import json

from torchscale.plan.expand import Plan
from torchscale.plan.forecast import Forecast


def plan_json(plan: Plan, forecast: Forecast) -> str:
    """The plan for machines: each cell with its id and the reason if it is skipped."""
    cells = [
        {
            "cell_id": entry.cell.id,
            "skip_reason": entry.skip_reason,
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
        "cells": cells,
    }
    return json.dumps(content, indent=1)
