"""What an acceptance measured in its rounds, and what is said of each figure."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from pydantic import Field, model_validator

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    IntervalEnd,
    Moment,
    Name,
    NotNegative,
    Positive,
    PositiveCount,
    Real,
)
from torchscale.schema.launch.telemetry import GpuUse


class FigureStatus(str, Enum):
    """What can be said of a figure.

    ``NO_LIMIT``: there is nothing to hold it against, which is no pass. ``UNCLEAR``: its interval
    holds the limit, or too few rounds were undisturbed. ``FLAPPING``: of its two levels the lower
    one misses a limit, or they are further apart than the policy allows.
    """

    WITHIN = "within"
    LOW = "low"
    UNCLEAR = "unclear"
    FLAPPING = "flapping"
    NO_LIMIT = "no limit"


class LimitKind(str, Enum):
    """Where a limit is from."""

    DOCUMENTED = "documented"
    BASELINE = "baseline"
    PEERS = "peers"


class Cause(str, Enum):
    """Whether a low or flapping figure is the host's or its set-up's."""

    HOST = "host"
    SETUP = "set-up"
    UNCLEAR = "unclear"


class Series(Frozen):
    """A rate of one part of a node over the rounds; higher is better.

    Attributes:
        figure: ``compute bf16``, ``memory bandwidth``, ``all-reduce`` …
        part: ``GPU 2``, ``GPU 0 → GPU 1``, ``cores 4-7`` or ``node``.
        unit: Of the values: per second.
        device: The device's name; empty for what is of no single kind of device.
        uuids: GPUs whose figure it is: one, two for a link, none for what is not of single GPUs.
        values: By round; ``None`` where it was not measured.
    """

    figure: Name
    part: Name
    unit: Literal["FLOP/s", "B/s", "samples/s"]
    device: Name = ""
    uuids: tuple[Name, ...] = ()
    values: tuple[Positive | None, ...]


class Conditions(Frozen):
    """What beside the hardware can move the figures of a round.

    Attributes:
        foreign_share: Share of the cores' time that other processes had; ``None``: not read.
        cpus: How many CPUs the ranks may use.
        quota_cpus: CPUs of the control group's quota; ``None`` without one.
        held_back_share: Share of the round in which that quota held processes back; ``None`` where
            the kernel does not say.
        shared_gpus: Whether others computed on the GPUs.
        far_uuids: GPUs whose rank ran on cores of another NUMA node.
        gpus: What the driver reported of each GPU.
    """

    foreign_share: NotNegative | None = None
    cpus: Count | None = None
    quota_cpus: Real | None = None
    held_back_share: NotNegative | None = None
    shared_gpus: bool = False
    far_uuids: tuple[str, ...] = ()
    gpus: tuple[GpuUse, ...] = ()


class Round(Frozen):
    """A round: everything once. ``started_at``: UTC, ISO 8601. ``problems``: launches that
    failed, a line each; ``missing``: what was not measured any more."""

    started_at: Moment
    seconds: NotNegative
    conditions: Conditions
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class Counter(Frozen):
    """An error counter before and after: ``before`` and ``after`` count since the driver or the
    interface was started."""

    part: str
    counter: str
    uuid: Name | None = None
    before: Count
    after: Count


class AcceptanceRun(Frozen):
    """What was measured: nothing in it is a judgement.

    Attributes:
        hostname: Where.
        device: ``cuda`` or ``cpu``.
        asked: Kind of cell → hash of what was asked of each round: figures compare where it is
            equal.
        world_size: Ranks of each launch.
        virtual_cores: Whether the ranks run on the cores of a virtual machine.
        nodes: Nodes that are accepted together, which share the false alarms.
        versions: Versions that can change a figure, by name.
        budget_seconds, seconds: Time that was given, and that it took.
        ended: Why there was no further round.
        rounds: In their order.
        series: A series for each figure of each part.
        counters: Error counters before and after.
    """

    hostname: Name
    device: Name
    asked: dict[str, str]
    world_size: Count
    virtual_cores: bool = False
    nodes: PositiveCount = 1
    versions: dict[str, str] = Field(default_factory=dict)
    budget_seconds: Positive
    seconds: NotNegative
    ended: Literal["narrow", "budget", "interrupted", "failed"]
    rounds: tuple[Round, ...]
    series: tuple[Series, ...]
    counters: tuple[Counter, ...] = ()

    @model_validator(mode="after")
    def _every_series_is_of_these_rounds(self) -> AcceptanceRun:
        for series in self.series:
            if len(series.values) != len(self.rounds):
                raise ValueError(
                    f"{series.figure} of {series.part} has {len(series.values)} values for "
                    f"{len(self.rounds)} rounds"
                )
        if len({(series.figure, series.part) for series in self.series}) < len(self.series):
            raise ValueError("two series of one figure and part")
        return self


class Baseline(Frozen):
    """An earlier acceptance that this one is held against. ``source``: the file's name."""

    source: str
    run: AcceptanceRun


class Limit(Frozen):
    """What a figure is held against.

    Attributes:
        rate: What it must reach.
        reference: The rate that the limit is a share of.
        basis: The reference and the share, in words.
    """

    kind: LimitKind
    rate: Positive
    reference: Positive
    basis: str


class JudgedFigure(Frozen):
    """A figure of a part.

    Attributes:
        rounds: Undisturbed rounds that it is from.
        rate: Geometric mean over them; ``None`` without any.
        low, high: 95 % interval of it; ``None`` with fewer than two rounds.
        limit: The limit that decided; ``None`` where there is none.
        deficit: How far the rate is below the limit's reference, as a share; negative above.
        seems_low: Unclear, and below the limit: to be measured for longer.
        modes: Rate and number of rounds of each of two levels, the slower first; empty where it has
            one. A fact: what follows from it is the status.
        cause: Of what is low or has two levels.
        because: What the status and cause rest on.
        action: What to do first; empty where nothing is.
    """

    figure: str
    part: str
    unit: str
    uuids: tuple[str, ...] = ()
    status: FigureStatus
    rounds: Count
    rate: Positive | None = None
    low: IntervalEnd | None = None
    high: IntervalEnd | None = None
    limit: Limit | None = None
    deficit: Real | None = None
    seems_low: bool = False
    modes: tuple[()] | tuple[tuple[Positive, Count], tuple[Positive, Count]] = ()
    cause: Cause | None = None
    because: str = ""
    action: str = ""


class Power(Frozen):
    """A prediction: the smallest slowdown that is found with ``probability``, as a share.

    Attributes:
        rounds: Rounds that fit into the budget.
        round_seconds: What one takes.
        noise: Standard deviation from round to round of the noisiest figure, as a share.
        noisiest, steadiest: Names of those figures; empty before anything was measured.
        measured: Rounds that noise and time are from; 0: default values.
        by_limit: Kind of limit → the smallest slowdown of the noisiest figure.
        best: The same of the steadiest figure.
    """

    rounds: Count
    round_seconds: Positive
    noise: NotNegative
    noisiest: str = ""
    steadiest: str = ""
    measured: Count
    probability: Real = 0.9
    by_limit: dict[LimitKind, Real] = Field(default_factory=dict)
    best: dict[LimitKind, Real] = Field(default_factory=dict)


class Acceptance(Frozen):
    """An acceptance: what was measured, what it was held against, what follows. ``folder``: name of
    its folder in the directory of results."""

    schema_version: Count = SCHEMA_VERSION
    folder: str = ""
    run: AcceptanceRun
    baseline: Baseline | None = None
    power: Power | None = None
    figures: tuple[JudgedFigure, ...] = ()
