"""The search for the fastest setting of a config on this machine; every launch goes into a run
folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import TuningAxis
from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.errors import MachineError, StoreError, UsageError
from torchscale.features.decide.tune.launcher import with_changes
from torchscale.features.decide.tune.memory import MemoryForecast
from torchscale.features.decide.tune.outcome import TuneOutcome
from torchscale.features.decide.tune.question import TuneQuestion
from torchscale.features.decide.tune.settings import (
    BY_EXPECTED_GAIN,
    COMMUNICATION,
    NUMERICS,
    with_strategies,
)
from torchscale.features.decide.tune.space import StrategySpace, strategy_space
from torchscale.features.decide.tune.surface import START
from torchscale.features.decide.tune.tuned_cell import for_tuning, only_cell, title_of
from torchscale.measure.context import measuring, plan_run
from torchscale.observer import SILENT, Observer
from torchscale.store.derived_files import write_derived_files
from torchscale.store.locations import RESULTS
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_text
from torchscale.util.units import format_coarse_seconds

BUDGET_SECONDS = 600.0
LAUNCH_SECONDS = 2.0
"""Measured in a launch: about as long as a launch takes to start and to warm up on a CPU. Shorter
ones would spend their time on that; longer ones do not average out what differs from launch to
launch."""


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
    start = only_cell(planned)
    directory = output_dir or RESULTS / f"tune-{experiment.experiment_name}"
    forecast, space = None, None
    if TuningAxis.STRATEGY in axes:
        forecast = MemoryForecast(planned, start.world_size)
        space = strategy_space(planned, start, forecast, observer)
        _require_one(space)
    question = TuneQuestion(planned, axes, directory, options.budget_seconds, observer, forecast)
    most = f"Measuring settings, for {format_coarse_seconds(options.budget_seconds)} at most"
    with measuring(directory) as stop, observer.status(most):
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
        title_of(start, space),
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


def _write_config(winner: Experiment, path: Path) -> None:
    """Write the config, and read it back.

    Raises:
        OutputError: it cannot be written.
        StoreError: what was written does not load to the same experiment.
    """
    atomic_write_text(path, to_yaml(winner))
    if load_experiment(path).model_dump() != winner.model_dump():
        raise StoreError(f"{path}: does not load to the config that was measured")
