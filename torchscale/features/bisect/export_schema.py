"""The JSON of ``bisect --json``."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export, PublishedDocument


class CostExport(Export):
    """How much longer it takes, as a share of what it took (0.1 for 10 %), with the interval that
    holds together with the answer."""

    what: str
    """A factor, or the first slow environment."""
    ratio: float
    low: float
    high: float


class ModesExport(Export):
    """Two clusters of an environment's launches."""

    slow: int
    """Launches of the slow one."""
    launches: int
    ratio: float
    """How much longer a slow launch takes, as a share."""


class ShiftExport(Export):
    """A change of the number between two environments."""

    against: str
    """The environment before it, whose launches count."""
    since: str
    """The first one after it."""
    before: str
    """The number, or the mean, as text: ``nan`` and ``inf`` are none of JSON's numbers."""
    after: str
    difference: float | None
    """``after`` minus ``before``; null where one of both is not finite."""
    low: float | None
    """Lower end of its interval, which holds together with the answer; null where numbers repeat."""
    high: float | None


class ChangeExport(Export):
    """The question whether a number changed, and how it was decided."""

    what: str
    """What the number is called."""
    rule: Literal["exactly", "tolerance", "finite", "mean"] | None
    """``exactly``: numbers repeat bit for bit, and equality decides. ``tolerance``: the same up to
    the tolerance. ``finite``: which of finite, NaN and infinite a number is. ``mean``: launches of
    one environment scatter, and means decide. Null before it is known."""
    why: str
    tolerance: float
    least: float | None
    """Of means: the smallest change that was looked for, in the number's unit."""
    scatter: float | None
    """Of means: standard deviation of a launch, in the number's unit."""
    shifts: tuple[ShiftExport, ...]
    """The largest change between neighbors, then further ones. Of factors: between both ends."""


# Unsteady: its launches scatter more than those of the others.
EnvironmentState = Literal["ok", "not launched", "not built", "failed", "two states", "unsteady"]


class EnvironmentExport(Export):
    """One environment and its launches."""

    label: str
    requirements: tuple[str, ...]
    revision: str
    variables: dict[str, str]
    state: EnvironmentState
    reason: str
    """Why it could not be built, or failed."""
    launches: int
    """Those that count."""
    mean: float | None
    """Geometric mean of the launches; null for none. Of a number that may have changed, the
    arithmetic one; null where numbers repeat."""
    low: float | None
    """Lower end of its 95 % interval; null below two launches."""
    high: float | None
    slow: float | None
    """Probability that it is slower than the good end; null where its launches say nothing, and
    before it is known that the bad end is slower."""
    modes: ModesExport | None
    numbers: tuple[str, ...] = ()
    """Where the question is whether a number changed: the different ones of its launches."""
    level: int | None = None
    """Where these repeat: 0 for the good end's number, 1 for the bad end's, 2 and more for others."""


class BisectionExport(Export):
    """What made it slower, and the evidence."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    ending: Literal["found", "no difference", "unusable", "two states", "undecided", "interrupted"]
    verdict: str
    """The answer in a sentence."""
    kind: Literal["step", "alone", "together", "either", "sum"] | None
    """``step``: slow from an environment on. ``alone``, ``together``, ``either``, ``sum``: which
    factors it takes. Null where nothing was found."""
    answers: tuple[tuple[str, ...], ...]
    """What can be meant: one entry, or several that no launch can tell apart. Each names the first
    slow environment, or the factors."""
    costs: tuple[CostExport, ...]
    difference: CostExport | None
    """The bad end against the good one, from launches of both alone; null before enough."""
    error_probability: float
    """Of a wrong answer, at most."""
    at_least: float
    """The smallest cost that was looked for, as a share."""
    metric: str
    unit: str
    noise: float | None
    """Standard deviation of a launch, as a share; null before enough."""
    environments: tuple[EnvironmentExport, ...]
    notes: tuple[str, ...]
    launches: int
    """All, warm-ups and failed ones too."""
    seconds: float
    """Wall time of all launches."""
    command: str
    """The line that gives this again."""
    change: ChangeExport | None = None
    """Null where the question is what became slower."""


class ExpectedExport(Export):
    """How many launches a bisection takes if the cost is of this size, from games on made-up
    noise."""

    cost: float
    """As a share."""
    launches: int
    """Median."""
    most: int
    """Nine games in ten take at most that many."""
    answered: float
    """Share of games with an answer within the limit of launches."""
    seconds: float | None
    """Wall time of the median; null where no launch was timed yet."""


class BisectionPlanExport(Export):
    """The JSON of ``bisect --dry-run --json``."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    changes: tuple[str, ...]
    """What differs between both ends."""
    environments: tuple[str, ...]
    """In order, the good end first."""
    built: tuple[bool, ...]
    """Whether each can be launched without a build."""
    noise: float | None
    """Standard deviation of a launch, as a share; null where a number is asked for that may have
    changed."""
    noise_measured: bool
    """Whether it was measured in the folder, or is assumed."""
    most_launches: int
    expected: tuple[ExpectedExport, ...]
    exact_launches: int | None = None
    """Median over the answers, where the question is whether a number changed that launches
    repeat."""


DOCUMENT = PublishedDocument(
    BisectionExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale bisection",
    "Which change made a command slower, and the evidence: `torchscale bisect --json`.",
)
