"""The search for the fastest setting of a config on this machine; every launch goes into a run
folder."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchscale.config.choices import TuningAxis
from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.sections import PRESETS, BenchmarkSettings
from torchscale.config.strategy import Ddp
from torchscale.errors import ExitCode, MachineError, StoreError, UsageError
from torchscale.measure.context import PlannedRun, measuring, plan_run
from torchscale.measure.summary_file import SummaryFile
from torchscale.observer import SILENT, Observer
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.tuning import (
    ChangeExport,
    ContributionExport,
    RatioExport,
    TuningExport,
    TuningTrialExport,
)
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.store.run_folder import RESULTS, RunFolder
from torchscale.tune.gains import Gain
from torchscale.tune.launcher import SettingLauncher, with_changes
from torchscale.tune.search import Search, Trial
from torchscale.tune.settings import (
    BY_EXPECTED_GAIN,
    EXCHANGES_NOTHING,
    EXPECTED_COSTS,
    NUMERICS,
    Candidate,
    all_buckets,
    candidates,
    has_buckets,
)
from torchscale.tune.surface import START, Change, Setting
from torchscale.util.files import atomic_write_text

BUDGET_SECONDS = 600.0
LAUNCH_SECONDS = 2.0
"""Measured in a launch: about as long as a launch takes to start and to warm up on a CPU. Shorter
ones would spend their time on that; longer ones do not average out what differs from launch to
launch."""
_COMMUNICATION = (TuningAxis.BUCKET, TuningAxis.COMM_HOOK)


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


@dataclass(frozen=True)
class TuneOutcome:
    """What a search gave.

    Attributes:
        directory: The run folder with every launch.
        search: Trials, winner, verification.
        cells: Setting → its cell.
        known: Every change that was considered.
        config: The file with the winning config; ``None`` where nothing better was verified.
        notes: What a user should know besides.
        title: What was tuned: ``ResNet-18, batch 32, 2 ranks``.
        interrupted: Whether Ctrl-C or TERM ended it.
        predicted_exposed_seconds: Bucket size → predicted exposed gradient sync of a step; empty
            where not predicted.
    """

    directory: Path
    search: Search
    cells: Mapping[Setting, TrainingCell]
    known: Mapping[Change, Candidate]
    config: Path | None
    notes: tuple[str, ...]
    title: str
    interrupted: bool
    predicted_exposed_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def better(self) -> bool:
        """Whether a faster setting was verified."""
        return self.config is not None

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 where the start could not be measured, 3 where the budget had no room
        for an answer, else 0: nothing better is an answer."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.search.ending == "start failed":
            return ExitCode.FAILED
        if self.search.ending == "budget" and not self.better:
            return ExitCode.UNABLE
        return ExitCode.OK

    def export(self) -> TuningExport:
        """Everything that was tried and found, for programs and for the terminal."""
        search = self.search
        return TuningExport(
            ending=search.ending,
            better=self.better,
            winner=self._changes(search.winner),
            verified=_ratio(search.verified),
            contributions=tuple(
                ContributionExport(change=self._changes((one.change,))[0], gain=gain)
                for one in search.contributions
                if (gain := _ratio(one.gain)) is not None
            ),
            interaction=search.interaction,
            exposed_communication=_ratio(search.probe),
            predicted_exposed_seconds=dict(self.predicted_exposed_seconds),
            smallest_visible_gain=search.visible_gain,
            skipped=search.skipped,
            trials=tuple(map(self._trial, search.trials.values())),
            untried=self._changes(search.untried),
            budget_seconds=search.budget_seconds,
            launch_seconds=search.launch_seconds,
            launches_needed=search.launches_needed,
            seconds_needed=search.seconds_needed,
            seconds=search.spent_seconds,
            config=None if self.config is None else str(self.config),
        )

    def _changes(self, setting: Setting) -> tuple[ChangeExport, ...]:
        entries = ((change, self.known[change]) for change in setting)
        return tuple(
            ChangeExport(axis=change.axis, setting=entry.key, value=change.value, note=entry.note)
            for change, entry in entries
        )

    def _trial(self, trial: Trial) -> TuningTrialExport:
        return TuningTrialExport(
            changes=self._changes(trial.setting),
            cell_id=self.cells[trial.setting].id,
            state=trial.state,
            reason=trial.reason,
            throughput=math.exp(math.fsum(trial.logs) / len(trial.logs)) if trial.logs else None,
            launches=trial.launches,
            seconds=trial.seconds,
            gain=_ratio(trial.gain) if trial.state == State.OK.value else None,
            verdict=trial.verdict.value,
        )


def _ratio(gain: Gain | None) -> RatioExport | None:
    if gain is None:
        return None
    low, high = gain.interval()
    return RatioExport(ratio=gain.ratio, low=low, high=high, launches=gain.rounds)


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
    probe = _probe(planned, start, axes)
    known = _known(planned, start, axes, probe)
    directory = output_dir or RESULTS / f"tune-{experiment.experiment_name}"
    with measuring(directory) as stop, observer.status("Measuring settings"):
        settings = SettingLauncher(planned, directory, known, observer)
        search = Search(
            {
                axis.value: [
                    Change(axis.value, one.value) for one in _candidates(planned, start, axis)
                ]
                for axis in axes
            },
            budget_seconds=options.budget_seconds,
            probe=probe,
            probed=[axis.value for axis in _COMMUNICATION],
            choose=lambda axis, changes: settings.choose(axis, changes, probe),
            costs={axis.value: times for axis, times in EXPECTED_COSTS.items()},
            is_recorded=settings.is_recorded,
        )
        for axis in axes:
            if not _candidates(planned, start, axis):
                search.skipped[axis.value] = _why_nothing(axis, planned.experiment, start)
        settings.run(search, stop, on_launch)
        SummaryFile(RunFolder.open(directory)).write()
        outcome = TuneOutcome(
            directory,
            search,
            settings.cells,
            known,
            None,
            (*notes, *settings.notes),
            _title(start),
            interrupted=stop.asked,
            predicted_exposed_seconds=settings.predicted_exposed_seconds,
        )
    if not search.is_verified:
        return outcome
    _write_config(with_changes(experiment, search.winner, known), config)
    hidden = (
        ("the config holds values that are hidden here; put them back",)
        if experiment.hidden
        else ()
    )
    return replace(outcome, config=config, notes=(*outcome.notes, *hidden))


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
        return tuple(axis for axis in BY_EXPECTED_GAIN if axis in options.axes), ()
    if options.allow_numerics:
        return BY_EXPECTED_GAIN, ()
    left_out = ", ".join(axis.value for axis in NUMERICS)
    allowed = tuple(axis for axis in BY_EXPECTED_GAIN if axis not in NUMERICS)
    return allowed, (
        f"{left_out} change what is computed and were not tried; --allow-numerics tries them",
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
    planned: PlannedRun, start: TrainingCell, axis: TuningAxis
) -> tuple[Candidate, ...]:
    """What is tried on an axis unless a prediction chooses; a single rank communicates with
    nobody."""
    if start.world_size == 1 and axis in _COMMUNICATION:
        return ()
    return candidates(planned.experiment, axis, planned.plan.device, len(planned.machine.cores))


def _known(
    planned: PlannedRun, start: TrainingCell, axes: Sequence[TuningAxis], probe: Setting
) -> dict[Change, Candidate]:
    """Every change that may be measured, by its name."""
    found = [one for axis in axes for one in _candidates(planned, start, axis)]
    if probe:
        found += [*all_buckets(planned.experiment), EXCHANGES_NOTHING]
    return {Change(one.axis.value, one.value): one for one in found}


def _probe(planned: PlannedRun, start: TrainingCell, axes: Sequence[TuningAxis]) -> Setting:
    """The run that exchanges nothing, where an axis of communication is searched. Its buckets are
    small, so that they show when gradients are ready."""
    if (
        start.world_size == 1
        or not has_buckets(planned.experiment)
        or not set(axes) & set(_COMMUNICATION)
    ):
        return START
    small = min(all_buckets(planned.experiment), key=lambda one: float(one.value.split()[0]))
    return tuple(sorted(Change(one.axis.value, one.value) for one in (small, EXCHANGES_NOTHING)))


def _why_nothing(axis: TuningAxis, experiment: Experiment, start: TrainingCell) -> str:
    if axis in _COMMUNICATION:
        return (
            "a single rank"
            if start.world_size == 1
            else f"strategy {start.strategy.name} has no gradient buckets"
        )
    if axis is TuningAxis.CHANNELS_LAST:
        return f"a memory format for image models; {start.model} takes tokens"
    if axis is TuningAxis.CHECKPOINTING:
        return "the start recomputes nothing, and recomputing costs time"
    if axis is TuningAxis.WORKERS:
        return f"data.source {experiment.data.source[0]} has no loader processes"
    return "no other value for this device"


def _title(cell: TrainingCell) -> str:
    ranks = f"{cell.world_size} rank{'s' * (cell.world_size > 1)}"
    return f"{cell.title}, batch {cell.batch_size}, {ranks}, {cell.setting}"


def _write_config(winner: Experiment, path: Path) -> None:
    """Write the config, and read it back.

    Raises:
        OutputError: it cannot be written.
        StoreError: what was written does not load to the same experiment.
    """
    atomic_write_text(path, to_yaml(winner))
    if load_experiment(path).model_dump() != winner.model_dump():
        raise StoreError(f"{path}: does not load to the config that was measured")
