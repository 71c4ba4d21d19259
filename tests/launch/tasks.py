"""Tasks of short launches on two cores."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.factories import experiment, machine
from tests.integration.conftest import FAST
from torchscale.launch.control import LaunchLimits
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.task import LaunchTask

SOUND = {"name": "faulty:build", "fault": "none"}
"""A model that needs no further library, for launches whose model is not the point."""
LIMITS = LaunchLimits(timeout_seconds=120, stall_seconds=60)


def tasks(*models: Any, world_size: int = 2, **content: Any) -> list[LaunchTask]:
    """A task for each model; ``content``: keys of a config."""
    usable = sorted(os.sched_getaffinity(0))[:2]
    settings = {"device": "cpu", "launch": {"threads_per_rank": 1}, "benchmark": FAST, **content}
    plan = make_plan(
        experiment(models=list(models), gpu_counts=world_size, **settings),
        machine(cores=max(len(usable), world_size)),
    )
    return [
        LaunchTask(
            cell=one,
            launch=0,
            device="cpu",
            cpu_sets=tuple((usable[rank % len(usable)],) for rank in range(world_size)),
            threads_per_rank=1,
            started_at=time.time(),
            collective_timeout_seconds=120,
        )
        for one in plan.to_run
    ]
