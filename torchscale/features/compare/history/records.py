"""What a history keeps of each run: where and with what it was measured, and every figure of every
cell."""

from __future__ import annotations

from torchscale.schema.base import (
    Count,
    Frozen,
    IntervalEnd,
    Moment,
    Name,
    NotNegative,
    Positive,
)
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultSet
from torchscale.schema.state import State


class HistoryRun(Frozen):
    """A run, without its figures.

    Attributes:
        number: Number of its row.
        identity: Identity that is equal for all states of one run folder, which may go on after it
            was added.
        name: The folder's name.
        measured_at: When its measurement began: UTC, ISO 8601.
        host, driver, torch, nccl, torchscale: Host and versions of its first session; empty where
            unknown.
        git_branch, git_commit: Branch and commit of the directory that the command was started in;
            empty outside a checkout.
        config_hash: Changes with any key of the config.
    """

    number: Count = 0
    identity: str
    name: str
    measured_at: Moment
    host: str = ""
    driver: str = ""
    torch: Name = ""
    nccl: str = ""
    torchscale: str = ""
    git_branch: str = ""
    git_commit: str = ""
    config_hash: str = ""


class HistoryOutcome(Frozen):
    """How a cell of a run ended.

    Attributes:
        run, cell: Their rows.
        state: How it ended.
        reason: Why, where that is not ``ok``.
        device: What its ranks ran on.
        flags: Flags of any of its launches.
        conditions: Which of ``contended`` and ``throttled`` more than a third of its launches have.
        measured_at: When its first launch began: UTC, ISO 8601; empty where unknown.
    """

    run: Count = 0
    cell: Count = 0
    state: State
    reason: str = ""
    device: Name = ""
    flags: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    measured_at: Moment = ""


class HistoryFigure(Frozen):
    """One metric of one cell of one run.

    Attributes:
        run, cell: Their rows.
        metric: Which metric.
        level: Geometric mean over launches, in the metric's unit.
        low, high: Ends of its 95 % interval from launch to launch; ``None`` with one launch.
        log_variance: Variance of the logarithm of one launch; ``None`` with one launch.
        launches: How many.
    """

    run: Count = 0
    cell: Count = 0
    metric: MetricKey
    level: Positive
    low: IntervalEnd | None = None
    high: IntervalEnd | None = None
    log_variance: NotNegative | None = None
    launches: Count


class HistoryCell(Frozen):
    """A cell of a run that is added to a history."""

    cell: AnyCell
    outcome: HistoryOutcome
    figures: tuple[HistoryFigure, ...] = ()


class HistoryEntry(Frozen):
    """A run that is added to a history.

    Attributes:
        run: The run; its ``number`` is given by the file.
        digest: Digest of everything measured: equal for a run that was added before.
        facts: Machine, software and settings by name.
        cells: Cells in plan order.
        results: The run as a whole, to compare with later.
    """

    run: HistoryRun
    digest: str
    facts: dict[str, str]
    cells: tuple[HistoryCell, ...]
    results: ResultSet


class HistoryContent(Frozen):
    """Runs from the oldest to the newest, cells by row, and what was measured."""

    runs: tuple[HistoryRun, ...]
    cells: dict[Count, AnyCell]
    outcomes: tuple[HistoryOutcome, ...]
    figures: tuple[HistoryFigure, ...]
