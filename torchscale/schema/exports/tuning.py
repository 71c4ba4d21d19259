"""The JSON of ``tune --json``."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export


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
