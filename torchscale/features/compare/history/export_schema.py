"""The JSON of ``history --json``."""

from __future__ import annotations

from pydantic import TypeAdapter

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
    level: float
    """Geometric mean over launches."""
    low: float | None
    """95 % interval of ``level`` from launch to launch; null with one launch."""
    high: float | None
    launches: int
    state: State
    flags: tuple[str, ...]
    left_out: str
    """Why it counts in no level: ``contended``, ``throttled`` or a state; empty where it counts."""


class HistoryDifferenceExport(Export):
    """Something of machine, software or settings that changed with a level."""

    what: str
    before: str
    """Empty where it was absent."""
    after: str


class ChangePointExport(Export):
    """A change of level."""

    since: str
    """When the first run of the new level was measured: UTC, ISO 8601."""
    last_before: int
    """Index in ``runs``: the last one of the level before."""
    first_after: int
    ratio: float
    """Level after ÷ level before, geometric means over runs."""
    interval: tuple[float, float] | None
    """95 % of ``ratio``, from run to run."""
    runs_before: int
    runs_after: int
    worse: bool
    differences: tuple[HistoryDifferenceExport, ...]
    commands: tuple[str, ...]
    """Lines to type: why it is slower, and which package made it so."""


class TrendExport(Export):
    """One figure of one cell on one kind of device."""

    cell_id: str
    label: str
    device: str
    metric: Metric
    detail: str
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


PUBLISHED = PublishedDocument(
    TypeAdapter(HistoryExport),
    RESULTS_SCHEMA_VERSION,
    "torchscale history",
    "Results over time with their change points: `torchscale history --json`.",
)
