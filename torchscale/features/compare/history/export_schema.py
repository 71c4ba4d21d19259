"""The JSON of ``history --json``."""

from __future__ import annotations

from pydantic import AliasPath, Field

from torchscale.config.choices import Metric
from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export, PublishedDocument
from torchscale.schema.state import State


class HistoryRunExport(Export):
    """A run. Texts are empty where something is not recorded."""

    name: str
    measured_at: str
    """When its measurement began: UTC, ISO 8601."""
    host: str
    driver: str
    torch: str
    nccl: str
    torchscale: str
    git_branch: str
    git_commit: str
    config_hash: str
    """Changes with any key of the config."""


class HistoryPointExport(Export):
    """A figure of one run."""

    run: int
    """Index in ``runs``."""
    level: float = Field(validation_alias=AliasPath("figure", "level"))
    """Geometric mean over launches."""
    low: float | None = Field(validation_alias=AliasPath("figure", "low"))
    """95 % interval of ``level`` from launch to launch; null with one launch."""
    high: float | None = Field(validation_alias=AliasPath("figure", "high"))
    launches: int = Field(validation_alias=AliasPath("figure", "launches"))
    state: State = Field(validation_alias=AliasPath("outcome", "state"))
    flags: tuple[str, ...] = Field(validation_alias=AliasPath("outcome", "flags"))
    left_out: str
    """Why it counts in no level: ``contended``, ``throttled`` or a state; empty where it counts."""


class HistoryDifferenceExport(Export):
    """Something of machine, software or settings that changed with a level."""

    what: str
    before: str = Field(validation_alias=AliasPath("values", 0))
    """Empty where it was absent."""
    after: str = Field(validation_alias=AliasPath("values", 1))


class ChangePointExport(Export):
    """A change of level."""

    since: str = Field(validation_alias=AliasPath("first", "measured_at"))
    """When the first run of the new level was measured: UTC, ISO 8601."""
    last_before: int
    """Index in ``runs``: the last one of the level before."""
    first_after: int
    ratio: float = Field(validation_alias=AliasPath("ratio", "value"))
    """Level after ÷ level before, geometric means over runs."""
    interval: tuple[float, float] | None = Field(validation_alias=AliasPath("ratio", "interval"))
    """95 % of ``ratio``, from run to run."""
    runs_before: int = Field(validation_alias=AliasPath("runs", 0))
    runs_after: int = Field(validation_alias=AliasPath("runs", 1))
    worse: bool
    differences: tuple[HistoryDifferenceExport, ...]
    commands: tuple[str, ...]
    """Lines to type: why it is slower, and which package made it so."""


class TrendExport(Export):
    """One figure of one cell on one kind of device."""

    cell_id: str = Field(validation_alias=AliasPath("cell", "id"))
    label: str
    device: str
    metric: Metric = Field(validation_alias=AliasPath("metric", "metric"))
    detail: str = Field(validation_alias=AliasPath("metric", "detail"))
    """Which of several figures of the metric; empty where there is one."""
    points: tuple[HistoryPointExport, ...]
    changes: tuple[ChangePointExport, ...]
    regression: bool
    """Whether the newest change is for the worse and larger than ``threshold``."""


class HistoryExport(Export):
    """Everything that was measured over time."""

    schema_version: int = RESULTS_SCHEMA_VERSION
    threshold: float
    """A newest level that is worse by at most this share is no regression."""
    false_discovery_rate: float
    """Expected share of false ones among all change points."""
    min_runs: int
    """Fewest runs on either side of a change point."""
    runs: tuple[HistoryRunExport, ...]
    """Oldest first."""
    trends: tuple[TrendExport, ...]
    left_out: tuple[str, ...]
    """A sentence on each run folder that was not added."""


DOCUMENT = PublishedDocument(
    HistoryExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale history",
    "Results over time with their change points: `torchscale history --json`.",
)
