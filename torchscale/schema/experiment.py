"""``experiment.json``: what a run folder is about."""

from __future__ import annotations

from torchscale.schema.base import SCHEMA_VERSION, Frozen
from torchscale.schema.config import Experiment
from torchscale.schema.environment import Environment
from torchscale.schema.task import AnyCell


class PlannedCell(Frozen):
    """A cell of the plan; ``skip_reason`` is set where this machine cannot run it."""

    cell: AnyCell
    skip_reason: str | None = None


class ExperimentFile(Frozen):
    """The resolved config, the plan it became here, and the machine."""

    schema_version: int = SCHEMA_VERSION
    tool_version: str
    config: Experiment
    plan_hash: str
    plan: tuple[PlannedCell, ...]
    environment: Environment
    created_at: str
    threads_per_rank: int
