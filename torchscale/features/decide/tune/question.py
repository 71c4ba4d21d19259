"""One question to a search: what is tried on each axis, for how long, and where launches go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torchscale.config.choices import TuningAxis
from torchscale.config.experiment import Experiment
from torchscale.features.decide.tune.launcher import SettingLauncher
from torchscale.features.decide.tune.memory import MemoryForecast
from torchscale.features.decide.tune.search import FEWEST_OF_VERIFICATION, SettingSearch
from torchscale.features.decide.tune.settings import (
    COMMUNICATION,
    EXCHANGES_NOTHING,
    EXPECTED_COSTS,
    SettingChange,
    all_buckets,
    candidates,
    has_buckets,
    with_strategies,
)
from torchscale.features.decide.tune.space import Entry, StrategySpace
from torchscale.features.decide.tune.surface import START, AxisChange, Setting
from torchscale.features.decide.tune.tuned_cell import only_cell
from torchscale.launch.control import StopRequest
from torchscale.measure.context import PlannedRun
from torchscale.observer import Observer
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.state import State

_MORE_LAUNCHES = 2
"""Launches of products and variations, and of what is ahead, of the smallest spaces of
strategies."""


class FoundSetting(NamedTuple):
    """A search at its end, the launcher that it had, and every change that it could make."""

    search: SettingSearch
    settings: SettingLauncher
    known: Mapping[AxisChange, SettingChange]
    space: StrategySpace | None


@dataclass(frozen=True)
class TuneQuestion:
    """What is searched, for how long, and where launches go."""

    planned: PlannedRun
    axes: tuple[TuningAxis, ...]
    directory: Path
    budget_seconds: float
    observer: Observer
    forecast: MemoryForecast | None

    def answered(
        self, space: StrategySpace | None, stop: StopRequest, on_launch: Callable[[str], None]
    ) -> FoundSetting:
        """Search; where the start runs out of memory, again from the simplest strategy that is
        left."""
        budget = self.budget_seconds
        while True:
            found = self._searched(space, budget, stop, on_launch)
            following = _next_space(found)
            if following is None or stop.asked:
                return found
            budget -= found.search.new_seconds
            space = following

    def _searched(
        self,
        space: StrategySpace | None,
        budget_seconds: float,
        stop: StopRequest,
        on_launch: Callable[[str], None],
    ) -> FoundSetting:
        planned = self.planned if space is None else _from_strategy(self.planned, space.start)
        start = only_cell(planned)
        probe = _probe(planned, start, self.axes)
        values = {axis: _candidates(planned, start, axis, space) for axis in self.axes}
        known = _known(planned, values, probe)
        settings = SettingLauncher(
            planned,
            self.directory,
            known,
            self.observer,
            refuse=(lambda _: None) if self.forecast is None else self.forecast.refusal,
            keeps_oom=space is not None,
        )
        search = SettingSearch(
            {
                axis.value: [AxisChange(axis.value, one.value) for one in found]
                for axis, found in values.items()
            },
            budget_seconds=budget_seconds,
            probe=probe,
            probed=[axis.value for axis in COMMUNICATION],
            choose=lambda axis, changes: settings.choose(axis, changes, probe),
            costs={axis.value: times for axis, times in EXPECTED_COSTS.items()},
            is_recorded=settings.is_recorded,
            traits={} if space is None else {TuningAxis.STRATEGY.value: space.traits},
            held=() if space is None else space.held,
            most_launches=None if space is None else _most_launches(space, values),
        )
        for axis, found in values.items():
            if not found:
                search.skipped[axis.value] = _why_nothing(axis, planned.experiment, start)
        settings.run(search, stop, on_launch)
        return FoundSetting(search, settings, known, space)


def _from_strategy(planned: PlannedRun, start: Entry) -> PlannedRun:
    """The same run with the strategy that a search starts from."""
    experiment = with_strategies(planned.experiment, start.choice.strategy)
    if experiment == planned.experiment:
        return planned
    return replace(planned, experiment=experiment, plan=make_plan(experiment, planned.machine))


def _next_space(found: FoundSetting) -> StrategySpace | None:
    """The space with another start, where this one ran out of memory; ``None`` where none is
    needed or left."""
    if found.space is None or found.search.ending != "start failed":
        return None
    trial = found.search.trials[START]
    if trial.state != State.OOM.value:
        return None
    return found.space.without(found.space.start, f"{trial.state}: {trial.reason}")


def _most_launches(
    space: StrategySpace, values: Mapping[TuningAxis, Sequence[SettingChange]]
) -> int:
    """Half of the launches of an exhaustive search over all combinations; of few strategies, one
    launch of each that is no product or variation, some more, and a verification."""
    beside = math.prod(
        1 + len(found) for axis, found in values.items() if axis is not TuningAxis.STRATEGY
    )
    least = len(space.runnable) - len(space.held) + _MORE_LAUNCHES + FEWEST_OF_VERIFICATION
    return max(space.exhaustive_launches * beside // 2, least)


def _candidates(
    planned: PlannedRun, start: TrainingCell, axis: TuningAxis, space: StrategySpace | None
) -> tuple[SettingChange, ...]:
    """What is tried on an axis unless a prediction chooses; a single rank communicates with
    nobody."""
    if axis is TuningAxis.STRATEGY and space is not None:
        return space.candidates
    if start.world_size == 1 and axis in COMMUNICATION:
        return ()
    return candidates(planned.experiment, axis, planned.plan.device, len(planned.machine.cores))


def _known(
    planned: PlannedRun, values: Mapping[TuningAxis, Sequence[SettingChange]], probe: Setting
) -> dict[AxisChange, SettingChange]:
    """Every change that may be measured, by its name."""
    found = [one for several in values.values() for one in several]
    if probe:
        found += [*all_buckets(planned.experiment), EXCHANGES_NOTHING]
    return {AxisChange(one.axis.value, one.value): one for one in found}


def _probe(planned: PlannedRun, start: TrainingCell, axes: Sequence[TuningAxis]) -> Setting:
    """The run that exchanges nothing, where an axis of communication is searched. Its buckets are
    small, so that they show when gradients are ready."""
    if (
        start.world_size == 1
        or not has_buckets(planned.experiment)
        or not set(axes) & set(COMMUNICATION)
    ):
        return START
    small = min(all_buckets(planned.experiment), key=lambda one: float(one.value.split()[0]))
    return tuple(
        sorted(AxisChange(one.axis.value, one.value) for one in (small, EXCHANGES_NOTHING))
    )


def _why_nothing(axis: TuningAxis, experiment: Experiment, start: TrainingCell) -> str:
    if axis in COMMUNICATION:
        return (
            "a single rank"
            if start.world_size == 1
            else f"strategy {start.strategy.name} has no gradient buckets"
        )
    if axis is TuningAxis.STRATEGY:
        return "no other strategy can run here"
    if axis is TuningAxis.CHANNELS_LAST:
        return f"a memory format for image models; {start.model} takes tokens"
    if axis is TuningAxis.CHECKPOINTING:
        return "the start recomputes nothing, and recomputing costs time"
    if axis is TuningAxis.WORKERS:
        return f"data.source {experiment.data.source[0]} has no loader processes"
    return "no other value for this device"
