"""Runs of acceptances with known speeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchscale.schema.node.acceptance import AcceptanceRun, Baseline, Conditions, Round, Series

NOISE = 0.01


def a_run(
    speeds: Mapping[tuple[str, str], Sequence[float | None]],
    *,
    conditions: Sequence[Conditions] | None = None,
    **more: Any,
) -> AcceptanceRun:
    """A run with these values by figure and part; parts called ``GPU n`` have the UUID ``n``."""
    count = len(next(iter(speeds.values())))
    each = conditions or [Conditions(foreign_share=0.01, cpus=8)] * count
    return AcceptanceRun(
        **{
            "hostname": "node-1",
            "device": "cuda",
            "asked": {},
            "world_size": 8,
            "budget_seconds": 600.0,
            "seconds": 100.0,
            "ended": "budget",
            "rounds": tuple(
                Round(started_at="2026-01-02T03:04:05+00:00", seconds=10.0, conditions=it)
                for it in each
            ),
            "series": tuple(
                Series(
                    figure=figure,
                    part=part,
                    unit="B/s",
                    device="a device",
                    uuids=_uuids(part),
                    values=tuple(values),
                )
                for (figure, part), values in speeds.items()
            ),
            **more,
        }
    )


def _uuids(part: str) -> tuple[str, ...]:
    if not part.startswith("GPU"):
        return ()
    return tuple(text.removeprefix("GPU ") for text in part.split(" → "))


def noisy(
    rng: np.random.Generator, rate: float, rounds: int, noise: float = NOISE
) -> tuple[float, ...]:
    """A rate over rounds with normal noise of its logarithm."""
    return tuple(rate * math.exp(error) for error in rng.normal(0, noise, rounds))


def eight_gpus(
    rng: np.random.Generator, factors: Mapping[int, float] | None = None, rounds: int = 8
) -> dict[tuple[str, str], tuple[float, ...]]:
    """A figure of eight GPUs, some of which have a factor on their rate."""
    known = factors or {}
    return {
        ("memory bandwidth", f"GPU {it}"): noisy(rng, 3e12 * known.get(it, 1.0), rounds)
        for it in range(8)
    }


def baseline_of(run: AcceptanceRun) -> Baseline:
    """The run as a baseline."""
    return Baseline(source="node-1.json", run=run)
