"""The strategies that a search compares on this machine: which can run, and which are predicted to
fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchscale.config.choices import TuningAxis
from torchscale.config.strategy import Strategy, strategy_label
from torchscale.features.decide.tune.memory import (
    PREDICTION_SECONDS,
    MemoryForecast,
    MemoryNeed,
)
from torchscale.features.decide.tune.settings import SettingChange, with_strategies
from torchscale.features.decide.tune.strategies import StrategyChoice, choice_of, choices
from torchscale.features.decide.tune.surface import AxisChange, Setting, Traits
from torchscale.launch.prediction import predicting
from torchscale.measure.checks import checked
from torchscale.measure.context import PlannedRun
from torchscale.observer import Observer
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell

_ROUNDS = 3
"""Launches of each strategy in an exhaustive search: with fewer there is no telling one from
another."""


@dataclass(frozen=True)
class Entry:
    """A strategy of the space.

    Attributes:
        choice: The strategy on the devices of the search.
        cell: The config's cell with it.
        need: What a rank is predicted to take; ``None`` without a prediction, and where it cannot
            run anyway.
        left_out: Why it is not launched; empty where it may be.
    """

    choice: StrategyChoice
    cell: TrainingCell
    need: MemoryNeed | None = None
    left_out: str = ""

    @property
    def change(self) -> AxisChange:
        """The strategy as a change of the start."""
        return AxisChange(TuningAxis.STRATEGY.value, self.choice.label)


@dataclass(frozen=True)
class StrategySpace:
    """Every strategy on this machine.

    Attributes:
        entries: The simplest first.
        start: The one that the others are compared with.
        moved: Why that is not the config's own; empty where it is.
        rank_bytes: Memory that a rank may take; ``None`` where it is unknown.
    """

    entries: tuple[Entry, ...]
    start: Entry
    moved: str = ""
    rank_bytes: int | None = None

    @property
    def runnable(self) -> tuple[Entry, ...]:
        """Those that may be launched, the start among them."""
        return tuple(entry for entry in self.entries if not entry.left_out)

    @property
    def others(self) -> tuple[Entry, ...]:
        """Those that may be launched, but for the start."""
        return tuple(entry for entry in self.runnable if entry != self.start)

    @property
    def candidates(self) -> tuple[SettingChange, ...]:
        """What the search may change the start to."""
        return tuple(strategy_candidate(entry.choice.strategy) for entry in self.others)

    @property
    def traits(self) -> Traits:
        """What strategies have in common."""
        found: dict[AxisChange | None, tuple[str, ...]] = {None: self.start.choice.traits}
        found.update({entry.change: entry.choice.traits for entry in self.others})
        return found

    @property
    def held(self) -> tuple[AxisChange, ...]:
        """Products and variations: launched where their parts let expect that they are faster.
        Where no part of them can run by itself, all are launched once."""
        held = [entry.change for entry in self.others if not entry.choice.is_plain]
        plain = [entry for entry in self.runnable if entry.choice.is_plain]
        return tuple(held) if plain else ()

    @property
    def exhaustive_launches(self) -> int:
        """Launches of a search that measures each strategy :data:`_ROUNDS` times."""
        return _ROUNDS * len(self.runnable)

    def entry_of(self, setting: Setting) -> Entry:
        """The strategy of a setting."""
        return next((entry for entry in self.others if entry.change in setting), self.start)

    def without(self, failed: Entry, reason: str) -> StrategySpace | None:
        """The space with another start, the simplest of those left; ``None`` where none is."""
        entries = tuple(
            replace(entry, left_out=reason) if entry == failed else entry for entry in self.entries
        )
        start = next((entry for entry in entries if not entry.left_out), None)
        if start is None:
            return None
        moved = self.moved or f"{failed.choice.label}: {reason}"
        return replace(self, entries=entries, start=start, moved=moved)


def strategy_space(
    planned: PlannedRun, start: TrainingCell, forecast: MemoryForecast, observer: Observer
) -> StrategySpace:
    """Every strategy on the devices of ``start``, with why those that cannot run, or are predicted
    not to fit, are left out. Where the config's own is predicted not to fit, the simplest that may
    is the start."""
    own = choice_of(start.strategy, start.world_size)
    found = [own if one.traits == own.traits else one for one in choices(start.world_size)]
    if own not in found:
        found.append(own)
    found.sort(key=lambda one: one.simplicity)
    every = with_strategies(planned.experiment, *(one.strategy for one in found))
    plan = checked(make_plan(every, planned.machine), every, observer)
    cells = of_kind([entry.cell for entry in plan.cells], TrainingCell)
    runnable = of_kind(plan.to_run, TrainingCell)
    with observer.status(predicting(PREDICTION_SECONDS)):
        forecast.predict(runnable)
    entries = []
    for choice, cell, entry in zip(found, cells, plan.cells, strict=True):
        reason = entry.skip_reason or ""
        need = None
        if not reason:
            need, reason = forecast.need(cell), forecast.refusal(cell) or ""
        entries.append(Entry(choice, cell, need, reason))
    mine = next(entry for entry in entries if entry.choice == own)
    space = StrategySpace(tuple(entries), mine, rank_bytes=forecast.rank_bytes)
    if not mine.left_out:
        return space
    return space.without(mine, mine.left_out) or space


def strategy_candidate(strategy: Strategy) -> SettingChange:
    """Another strategy, with its own options."""
    return SettingChange(
        TuningAxis.STRATEGY,
        strategy_label(strategy),
        "parallel.strategy",
        lambda one: with_strategies(one, strategy),
    )
