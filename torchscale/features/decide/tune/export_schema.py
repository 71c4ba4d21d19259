"""The JSON of ``tune --json``."""

from __future__ import annotations

from typing import Literal

from torchscale.catalog.model_facts import OptionValue
from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export, PublishedDocument


class ChangeExport(Export):
    """One key of the start at another value."""

    axis: str
    setting: str
    """Key of the config."""
    value: str
    note: str
    """What it changes besides speed; empty where results stay the same but for rounding."""


class RatioExport(Export):
    """A ratio of throughputs with its 95 % interval."""

    ratio: float
    low: float
    high: float
    launches: int
    """Number of launches of the side that has fewer."""


class TuningTrialExport(Export):
    """One setting and how its launches ended."""

    changes: tuple[ChangeExport, ...]
    """Changes of the start; empty for the start itself."""
    cell_id: str
    state: str
    """``ok``, ``skipped``, or how its last launch failed."""
    reason: str
    throughput: float | None
    """Samples per second of the whole world, the geometric mean over launches; null where none
    succeeded."""
    launches: int
    seconds: float
    """Wall time of its launches."""
    gain: RatioExport | None
    """Over the start, of the means of all launches; null for the start, and where it failed."""
    verdict: str
    """``faster``, ``slower`` or ``no gain`` (less than 1 %) where that is known (95 %, one-sided);
    else ``open``."""


class ContributionExport(Export):
    """What one change of the winner gives: the winner over the winner without it."""

    change: ChangeExport
    gain: RatioExport


class RunnerUpExport(Export):
    """The strongest rival of a start that nothing is faster than."""

    changes: tuple[ChangeExport, ...]
    gain: RatioExport
    """Over the start, in launches by turns."""


StrategyState = Literal["fastest", "tie", "slower", "failed", "left out", "not launched"]


class StrategyExport(Export):
    """One strategy on the devices of the search."""

    strategy: str
    """Its name with the options that differ from their defaults."""
    config: dict[str, OptionValue]
    """The same as an entry of ``parallel.strategy``."""
    predicted_bytes: int | None
    """Predicted peak of a rank's memory; null without a prediction."""
    predicted_at_least: bool
    """Whether that is a lower bound: states of a model that is split by matrices or layers, without
    activations."""
    state: StrategyState
    """``tie``: the 95 % interval against the fastest holds 1. ``left out``: it cannot run, or is
    predicted not to fit. ``not launched``: what was measured of its parts lets expect nothing of it,
    or the search ended before."""
    reason: str
    """Why it failed or was left out."""
    throughput: float | None
    """Samples per second of all ranks at the same global batch, the geometric mean over launches;
    where other axes were searched too, of its fastest setting."""
    tokens_per_second: float | None
    """Null where samples have no tokens."""
    launches: int
    against_fastest: RatioExport | None
    """Over the fastest, from all launches of both; null for the fastest, and without launches."""


class TuningExport(Export):
    """The fastest setting that was found, its verified gain, and everything that was tried."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    ending: Literal["complete", "budget", "interrupted", "start failed"]
    better: bool
    """Whether a faster setting was verified."""
    winner: tuple[ChangeExport, ...]
    """The changes of the fastest setting that was found, verified or not; empty for the start."""
    verified: RatioExport | None
    """The winner over the start, in launches by turns that decided nothing else; null where it was
    not verified."""
    contributions: tuple[ContributionExport, ...]
    interaction: float | None
    """The winner's gain over the product of the gains of its changes alone, minus 1; null for fewer
    than two changes, and where its 95 % interval holds 0."""
    exposed_communication: RatioExport | None
    """A run that exchanges nothing over the start; null where it was not measured."""
    predicted_exposed_seconds: dict[str, float]
    """Bucket size: predicted exposed gradient sync of a step; empty where gradients were not
    timed."""
    smallest_visible_gain: float | None
    """The smallest gain that would have been seen with a probability of 80 %, as a share."""
    skipped: dict[str, str]
    """Axis: why nothing was tried on it."""
    untried: tuple[ChangeExport, ...]
    """What the budget had no room to launch once, in the order in which it would be."""
    budget_seconds: float
    """Wall time that new launches could take."""
    launch_seconds: float | None
    """Wall time of a launch, the median over settings; null before the first."""
    launches_needed: int
    """Launches that an answer takes at least: of all that is untried one each, and of a
    verification."""
    seconds_needed: float
    """Wall time that these are expected to take."""
    trials: tuple[TuningTrialExport, ...]
    seconds: float
    """Wall time of all launches, of those recorded before too."""
    config: str | None
    """The file with the winning config; null where none was written."""
    strategies: tuple[StrategyExport, ...] = ()
    """Every strategy on this number of devices, the simplest first; empty where the axis was not
    searched."""
    start_strategy: str = ""
    """The strategy that the others are compared with."""
    moved_start: str = ""
    """Why the start is not the config's own strategy, which does not fit; empty where it is."""
    rank_memory_bytes: int | None = None
    """Memory that a rank may take, which predictions are held against; null where it is not known,
    and where strategies were not searched."""
    runner_up: RunnerUpExport | None = None
    """Null where another strategy than the start's was verified, or none was searched."""
    exhaustive_launches: int | None = None
    """Launches that three of each strategy that can run would be; null where strategies were not
    searched."""


DOCUMENT = PublishedDocument(
    TuningExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale tuning",
    "The fastest setting of a config on this machine, and everything that was tried: "
    "`torchscale tune --json`.",
)
