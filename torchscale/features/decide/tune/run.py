"""The search for the fastest setting of a config on this machine; every launch goes into a run
folder."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torchscale.config.choices import TuningAxis
from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.sections.benchmark import PRESETS, BenchmarkSettings
from torchscale.config.strategies.data_parallel import Ddp
from torchscale.errors import MachineError, StoreError, UsageError
from torchscale.features.decide.tune.launcher import SettingLauncher, with_changes
from torchscale.features.decide.tune.memory import MemoryForecast, as_ddp
from torchscale.features.decide.tune.outcome import TuneOutcome
from torchscale.features.decide.tune.search import FEWEST_OF_VERIFICATION, SettingSearch
from torchscale.features.decide.tune.settings import (
    BY_EXPECTED_GAIN,
    COMMUNICATION,
    EXCHANGES_NOTHING,
    EXPECTED_COSTS,
    NUMERICS,
    SettingChange,
    all_buckets,
    candidates,
    has_buckets,
    with_strategies,
)
from torchscale.features.decide.tune.space import Entry, StrategySpace, strategy_space
from torchscale.features.decide.tune.surface import START, AxisChange, Setting
from torchscale.launch.control import StopRequest
from torchscale.measure.context import PlannedRun, measuring, plan_run
from torchscale.observer import SILENT, Observer
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.store.derived_files import write_derived_files
from torchscale.store.locations import RESULTS
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_text

BUDGET_SECONDS = 600.0
LAUNCH_SECONDS = 2.0
"""Measured in a launch: about as long as a launch takes to start and to warm up on a CPU. Shorter
ones would spend their time on that; longer ones do not average out what differs from launch to
launch."""
_MORE_LAUNCHES = 2
"""Launches of products and variations, and of what is ahead, of the smallest spaces of
strategies."""


@dataclass(frozen=True)
class TuneOptions:
    """What a search may do.

    Attributes:
        axes: Axes to search; ``None`` for all that the options allow.
        budget_seconds: Wall time of new launches; those of an earlier search in the folder take
            nothing of it.
        allow_numerics: Whether settings may be tried that change what is computed.
        launch_seconds: Measured in each launch.
    """

    axes: tuple[TuningAxis, ...] | None = None
    budget_seconds: float = BUDGET_SECONDS
    allow_numerics: bool = False
    launch_seconds: float = LAUNCH_SECONDS


def tune(
    experiment: Experiment,
    options: TuneOptions = TuneOptions(),
    *,
    config: Path = Path("tuned.yaml"),
    output_dir: Path | None = None,
    observer: Observer = SILENT,
    on_launch: Callable[[str], None] = lambda _: None,
) -> TuneOutcome:
    """Search the fastest setting of one cell, and verify it against the config's own.

    The same call resumes a search: launches in the folder count as they are, and the budget is for
    new ones.

    Args:
        experiment: An experiment with one value on each axis.
        options: What may be tried, and for how long.
        config: Where the winning config is written, if one is verified.
        output_dir: The run folder; ``results/tune-<experiment_name>`` by default.
        observer: Shows messages.
        on_launch: Called with a line on each new launch.

    Raises:
        UsageError: the experiment describes several settings, axes are not allowed, or ``config``
            cannot be written.
        MachineError: this machine cannot run it.
        StoreError: the folder holds another experiment.
        OutputError: a file cannot be written.
    """
    axes, notes = _axes(experiment, options)
    if not os.access(config.parent, os.W_OK | os.X_OK) or config.is_dir():
        raise UsageError(
            f"--output {config}: cannot be written", hint="name a file in an existing directory"
        )
    planned = plan_run(for_tuning(experiment, options.launch_seconds), observer)
    start = _only_cell(planned)
    directory = output_dir or RESULTS / f"tune-{experiment.experiment_name}"
    forecast, space = None, None
    if TuningAxis.STRATEGY in axes:
        forecast = MemoryForecast(planned, start.world_size)
        space = strategy_space(planned, start, forecast, observer)
        _require_one(space)
    question = _Question(planned, axes, directory, options.budget_seconds, observer, forecast)
    with measuring(directory) as stop, observer.status("Measuring settings"):
        found = question.answered(space, stop, on_launch)
        write_derived_files(RunFolder.open(directory))
    search, settings, space = found.search, found.settings, found.space
    outcome = TuneOutcome(
        directory,
        search,
        settings.cells,
        found.known,
        None,
        (*notes, *settings.notes),
        _title(start, space),
        interrupted=stop.asked,
        predicted_exposed_seconds=settings.predicted_exposed_seconds,
        space=space,
        tokens_per_sample=settings.tokens_per_sample,
    )
    runs_at_last = space is not None and bool(space.moved) and search.ending == "complete"
    if not search.is_verified and not runs_at_last:
        return outcome
    best = search.winner if search.is_verified else START
    if space is not None:
        experiment = with_strategies(experiment, space.start.choice.strategy)
    _write_config(with_changes(experiment, best, found.known), config)
    hidden = (
        ("the config holds values that are hidden here; put them back",)
        if experiment.hidden
        else ()
    )
    return replace(outcome, config=config, notes=(*outcome.notes, *hidden))


class _Found(NamedTuple):
    """A search at its end, the launcher that it had, and every change that it could make."""

    search: SettingSearch
    settings: SettingLauncher
    known: Mapping[AxisChange, SettingChange]
    space: StrategySpace | None


@dataclass(frozen=True)
class _Question:
    """What is searched, for how long, and where launches go."""

    planned: PlannedRun
    axes: tuple[TuningAxis, ...]
    directory: Path
    budget_seconds: float
    observer: Observer
    forecast: MemoryForecast | None

    def answered(
        self, space: StrategySpace | None, stop: StopRequest, on_launch: Callable[[str], None]
    ) -> _Found:
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
    ) -> _Found:
        planned = self.planned if space is None else _from_strategy(self.planned, space.start)
        start = _only_cell(planned)
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
        return _Found(search, settings, known, space)


def _from_strategy(planned: PlannedRun, start: Entry) -> PlannedRun:
    """The same run with the strategy that a search starts from."""
    experiment = with_strategies(planned.experiment, start.choice.strategy)
    if experiment == planned.experiment:
        return planned
    return replace(planned, experiment=experiment, plan=make_plan(experiment, planned.machine))


def _next_space(found: _Found) -> StrategySpace | None:
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


def _require_one(space: StrategySpace) -> None:
    """
    Raises:
        MachineError: no strategy can run here.
    """
    if space.runnable:
        return
    needs = [entry for entry in space.entries if entry.need is not None]
    if not needs:
        raise MachineError(space.start.left_out)
    least = min(needs, key=lambda entry: 0 if entry.need is None else entry.need.rank_bytes)
    raise MachineError(
        f"no strategy is predicted to fit; the one that takes least is {least.choice.label}, "
        f"{least.left_out}",
        hint="lower --batch-size, take more devices, or set training.activation_checkpointing",
    )


def _axes(
    experiment: Experiment, options: TuneOptions
) -> tuple[tuple[TuningAxis, ...], tuple[str, ...]]:
    """What to search, and notes on what is left out.

    Raises:
        UsageError: an axis was named that is not allowed.
    """
    if experiment.launch.nodes > 1 or experiment.nodes is not None:
        raise UsageError(
            "tune measures on one node; this config is for several", hint="set launch.nodes: 1"
        )
    if options.axes is not None:
        forbidden = [
            axis for axis in options.axes if axis in NUMERICS and not options.allow_numerics
        ]
        if forbidden:
            names = ", ".join(axis.value for axis in forbidden)
            raise UsageError(
                f"--search {names}: changes what is computed, and not only how fast",
                hint="allow it: --allow-numerics",
            )
        _refuse_options_of_one(options.axes)
        order = (TuningAxis.STRATEGY, *BY_EXPECTED_GAIN)
        return tuple(axis for axis in order if axis in options.axes), ()
    if options.allow_numerics:
        return BY_EXPECTED_GAIN, ()
    left_out = ", ".join(axis.value for axis in NUMERICS)
    allowed = tuple(axis for axis in BY_EXPECTED_GAIN if axis not in NUMERICS)
    return allowed, (
        f"{left_out} change what is computed and were not tried; --allow-numerics tries them",
    )


def _refuse_options_of_one(axes: Sequence[TuningAxis]) -> None:
    """
    Raises:
        UsageError: options of DDP are to be searched together with strategies.
    """
    of_ddp = [axis.value for axis in COMMUNICATION if axis in axes]
    if TuningAxis.STRATEGY in axes and of_ddp:
        are = "is an option" if len(of_ddp) == 1 else "are options"
        raise UsageError(
            f"--search strategy,{','.join(of_ddp)}: {' and '.join(of_ddp)} {are} of ddp, and no "
            "other strategy has it",
            hint="search the strategy first; if it is ddp, its options in a second search",
        )


def for_tuning(experiment: Experiment, launch_seconds: float) -> Experiment:
    """The experiment with short launches: their noise is what the search deals with, by measuring
    several."""
    quick = {
        **PRESETS["quick"],
        "preset": "quick",
        "warmup_seconds": min(PRESETS["quick"]["warmup_seconds"], launch_seconds),
        "measure_seconds": launch_seconds,
        "sync_cuda": experiment.benchmark.sync_cuda,
        "log_step_times": False,
    }
    training = experiment.training.model_copy(update={"epochs": None, "warmup_epochs": None})
    profiling = experiment.profiling.model_copy(update={"enabled": False})
    return experiment.model_copy(
        update={
            "benchmark": BenchmarkSettings.model_validate(quick),
            "training": training,
            "profiling": profiling,
            "measure": ("training",),
        }
    )


def _only_cell(planned: PlannedRun) -> TrainingCell:
    """The cell to be tuned.

    Raises:
        UsageError: there are several.
        MachineError: it cannot be run here.
    """
    cells = planned.plan.cells
    if len(cells) > 1:
        raise UsageError(
            f"tune takes one setting; this config has {len(cells)} cells",
            hint=_narrower(planned.experiment, cells),
        )
    if cells[0].skip_reason is not None:
        raise MachineError(cells[0].skip_reason)
    if any(isinstance(choice, ScriptChoice) for choice in planned.experiment.models):
        raise UsageError(
            "tune changes settings of built-in models; a script of your own sets its own",
            hint='measure its variants as axes: models: [{script: "train.py --lr {lr}", lr: [1, 2]}]',
        )
    (cell,) = of_kind([cells[0].cell], TrainingCell)
    if isinstance(cell.strategy, Ddp) and not cell.strategy.exchanges_gradients:
        raise UsageError(
            "comm_hook noop is no training", hint="start from a config that exchanges gradients"
        )
    return cell


def _narrower(experiment: Experiment, cells: Sequence[PlannedCell]) -> str:
    """Options that leave one value on each axis."""
    training = of_kind([entry.cell for entry in cells], TrainingCell)
    axes: dict[str, Sequence[str | int]] = {
        "--model": [cell.model for cell in training],
        "--gpus": [cell.world_size for cell in training],
        "--batch-size": [cell.batch_size or 0 for cell in training],
        "--precision": [cell.precision for cell in training],
        "--strategy": [cell.strategy.name for cell in training],
        "--optimizer": [cell.optimizer for cell in training],
    }
    several = [f"{option} {values[0]}" for option, values in axes.items() if len(set(values)) > 1]
    return (
        f"name one: {' '.join(several)}"
        if several
        else f"leave one value on each axis of {experiment.experiment_name}"
    )


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


def _title(cell: TrainingCell, space: StrategySpace | None) -> str:
    ranks = f"{cell.world_size} rank{'s' * (cell.world_size > 1)}"
    if space is None:
        return f"{cell.title}, batch {cell.batch_size}, {ranks}, {cell.setting}"
    batch = f"global batch {cell.global_batch_size}"
    return f"{cell.title}, {batch}, {ranks}, {as_ddp(cell).setting}"


def _write_config(winner: Experiment, path: Path) -> None:
    """Write the config, and read it back.

    Raises:
        OutputError: it cannot be written.
        StoreError: what was written does not load to the same experiment.
    """
    atomic_write_text(path, to_yaml(winner))
    if load_experiment(path).model_dump() != winner.model_dump():
        raise StoreError(f"{path}: does not load to the config that was measured")
