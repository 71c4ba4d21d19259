"""The search for the fastest setting of a config on this machine; every launch goes into a run folder."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.analysis.training.flags import Flag, launch_flags
from torchscale.analysis.training.throughput import samples_per_second
from torchscale.analysis.tuning.racing import Gain
from torchscale.analysis.tuning.search import Change, Measured, Search, Setting, Trial
from torchscale.config.choices import TuningAxis
from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.sections import PRESETS, BenchmarkSettings
from torchscale.config.strategy import Ddp
from torchscale.errors import ExitCode, MachineError, StoreError, UsageError
from torchscale.launch.control import StopRequest
from torchscale.plan.expand import make_plan
from torchscale.plan.tuning import EXCHANGES_NOTHING, NUMERICS, Candidate, candidates, has_buckets
from torchscale.run.context import RESULTS, PlannedRun, measuring, plan_run
from torchscale.run.launcher import Launcher, Pending, open_launcher
from torchscale.run.observer import SILENT, Observer
from torchscale.run.summary_file import SummaryFile
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.tuning import (
    ChangeExport,
    ContributionExport,
    RatioExport,
    TuningExport,
    TuningTrialExport,
)
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import atomic_write_text
from torchscale.util.units import format_rate, format_seconds

BUDGET_SECONDS = 600.0
LAUNCH_SECONDS = 2.0
"""Measured in a launch: on a quiet machine launches then differ by about 1 % (docs/tune.md), and more and shorter ones
would spend their time on starting."""
_SHOWN_FLAGS = (Flag.CONTENDED, Flag.THROTTLED)
"""The others are of short launches, which the search takes several of."""
_COMMUNICATION = (TuningAxis.BUCKET, TuningAxis.COMM_HOOK)


@dataclass(frozen=True)
class TuneOptions:
    """What a search may do.

    Attributes:
        axes: To be searched; ``None`` for all that the options allow.
        budget_seconds: Wall time of all launches, over all resumptions.
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
    """

    directory: Path
    search: Search
    cells: Mapping[Setting, TrainingCell]
    known: Mapping[Change, Candidate]
    config: Path | None
    notes: tuple[str, ...]
    title: str
    interrupted: bool

    @property
    def better(self) -> bool:
        """Whether a faster setting was verified."""
        return self.config is not None

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 where the start could not be measured, else 0: nothing better is an answer."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.search.ending == "start failed" else ExitCode.OK

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
            smallest_visible_gain=search.visible_gain,
            skipped=search.skipped,
            trials=tuple(map(self._trial, search.trials.values())),
            seconds=search.spent_seconds,
            config=None if self.config is None else str(self.config),
        )

    def _changes(self, setting: Setting) -> tuple[ChangeExport, ...]:
        entries = ((change, self.known[change]) for change in setting)
        return tuple(
            ChangeExport(axis=change.axis, key=entry.key, value=change.value, note=entry.note)
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
    if gain is None or gain.rounds < 2:
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

    The same call resumes a search: launches in the folder count as they are, and their time counts in the budget.

    Args:
        experiment: With one value on each axis.
        options: What may be tried, and for how long.
        config: Where the winning config is written, if one is verified.
        output_dir: The run folder; ``results/tune-<experiment_name>`` by default.
        observer: Shows messages.
        on_launch: Called with a line on each new launch.

    Raises:
        UsageError: the experiment describes several settings, axes are not allowed, or ``config`` cannot be written.
        MachineError: this machine cannot run it.
        StoreError: the folder holds another experiment.
        OutputError: a file cannot be written.
    """
    axes, notes = _axes(experiment, options)
    if not os.access(config.parent, os.W_OK | os.X_OK) or config.is_dir():
        raise UsageError(f"--output {config}: cannot be written", hint="name a file in an existing directory")
    planned = plan_run(for_tuning(experiment, options.launch_seconds), observer)
    start = _only_cell(planned)
    known = _known(planned, start, axes)
    directory = output_dir or RESULTS / f"tune-{experiment.experiment_name}"
    search = Search(
        {axis.value: [change for change in known if change.axis == axis.value] for axis in axes},
        budget_seconds=options.budget_seconds,
        probe=_probe(planned, start, axes),
        probed=[axis.value for axis in _COMMUNICATION],
    )
    for axis in axes:
        if not any(change.axis == axis.value for change in known):
            search.skipped[axis.value] = _why_nothing(axis, planned.experiment, start)
    with measuring(directory) as stop, observer.status("Measuring settings"):
        settings = SettingLauncher(planned, directory, known, observer)
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
        )
    if not search.is_verified:
        return outcome
    _write_config(_changed(experiment, search.winner, known), config)
    hidden = ("the config holds values that are hidden here; put them back",) if experiment.hidden else ()
    return replace(outcome, config=config, notes=(*outcome.notes, *hidden))


def _axes(experiment: Experiment, options: TuneOptions) -> tuple[tuple[TuningAxis, ...], tuple[str, ...]]:
    """What to search, and notes on what is left out.

    Raises:
        UsageError: an axis was named that is not allowed.
    """
    if experiment.launch.nodes > 1 or experiment.nodes is not None:
        raise UsageError("tune measures on one node; this config is for several", hint="set launch.nodes: 1")
    if options.axes is not None:
        forbidden = [axis for axis in options.axes if axis in NUMERICS and not options.allow_numerics]
        if forbidden:
            names = ", ".join(axis.value for axis in forbidden)
            raise UsageError(
                f"--search {names}: changes what is computed, and not only how fast", hint="allow it: --allow-numerics"
            )
        return tuple(dict.fromkeys(options.axes)), ()
    if options.allow_numerics:
        return tuple(TuningAxis), ()
    left_out = ", ".join(axis.value for axis in NUMERICS)
    allowed = tuple(axis for axis in TuningAxis if axis not in NUMERICS)
    return allowed, (f"{left_out} change what is computed and were not tried; --allow-numerics tries them",)


def for_tuning(experiment: Experiment, launch_seconds: float) -> Experiment:
    """The experiment with short launches: their noise is what the search deals with, by measuring several."""
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
            f"tune takes one setting; this config has {len(cells)} cells", hint=_narrower(planned.experiment, cells)
        )
    if cells[0].skip_reason is not None:
        raise MachineError(cells[0].skip_reason)
    (cell,) = of_kind([cells[0].cell], TrainingCell)
    if isinstance(cell.strategy, Ddp) and not cell.strategy.exchanges_gradients:
        raise UsageError("comm_hook noop is no training", hint="start from a config that exchanges gradients")
    return cell


def _narrower(experiment: Experiment, cells: Sequence[PlannedCell]) -> str:
    """Options that leave one value on each axis."""
    training = of_kind([entry.cell for entry in cells], TrainingCell)
    axes: dict[str, Sequence[str | int]] = {
        "--model": [cell.model for cell in training],
        "--gpus": [cell.world_size for cell in training],
        "--batch-size": [cell.batch_size for cell in training],
        "--precision": [cell.precision for cell in training],
        "--strategy": [cell.strategy.name for cell in training],
        "--optimizer": [cell.optimizer for cell in training],
    }
    several = [f"{option} {values[0]}" for option, values in axes.items() if len(set(values)) > 1]
    return (
        f"name one: {' '.join(several)}" if several else f"leave one value on each axis of {experiment.experiment_name}"
    )


def _known(planned: PlannedRun, start: TrainingCell, axes: Sequence[TuningAxis]) -> dict[Change, Candidate]:
    """Every change of the axes, by its name; a single rank communicates with nobody."""
    axes = [axis for axis in axes if start.world_size > 1 or axis not in _COMMUNICATION]
    cores = len(planned.machine.cores)
    found = (one for axis in axes for one in candidates(planned.experiment, axis, planned.plan.device, cores))
    return {Change(one.axis.value, one.value): one for one in (*found, EXCHANGES_NOTHING)}


def _probe(planned: PlannedRun, start: TrainingCell, axes: Sequence[TuningAxis]) -> Change | None:
    """The run that exchanges nothing, where an axis of communication is searched."""
    if start.world_size == 1 or not has_buckets(planned.experiment) or not set(axes) & set(_COMMUNICATION):
        return None
    return Change(EXCHANGES_NOTHING.axis.value, EXCHANGES_NOTHING.value)


def _why_nothing(axis: TuningAxis, experiment: Experiment, start: TrainingCell) -> str:
    if axis in _COMMUNICATION:
        return "a single rank" if start.world_size == 1 else f"strategy {start.strategy.name} has no gradient buckets"
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


def _changed(experiment: Experiment, setting: Setting, known: Mapping[Change, Candidate]) -> Experiment:
    for change in setting:
        experiment = known[change].apply(experiment)
    return experiment


def _write_config(winner: Experiment, path: Path) -> None:
    """Write the config, and read it back.

    Raises:
        OutputError: it cannot be written.
        StoreError: what was written does not load to the same experiment.
    """
    atomic_write_text(path, to_yaml(winner))
    if load_experiment(path).model_dump() != winner.model_dump():
        raise StoreError(f"{path}: does not load to the config that was measured")


class SettingLauncher:
    """Turns settings into launches in a run folder; launches that are there already are not repeated.

    Attributes:
        cells: Setting → its cell.
    """

    def __init__(
        self, planned: PlannedRun, directory: Path, known: Mapping[Change, Candidate], observer: Observer
    ) -> None:
        self._planned, self._directory, self._known, self._observer = planned, directory, known, observer
        self._file = planned.experiment_file().model_copy(update={"plan": ()})
        self._folder = RunFolder.create(directory, self._file)
        self._launches: dict[str, int] = {}
        self._flags: Counter[Flag] = Counter()
        self.cells: dict[Setting, TrainingCell] = {}

    def run(self, search: Search, stop: StopRequest, on_launch: Callable[[str], None]) -> None:
        """Drive the search to its end, or until asked to stop."""
        launches = search.launches()
        with self.launcher(stop) as launcher:
            try:
                setting = next(launches)
                while True:
                    measured = self.measure(setting, launcher, on_launch)
                    if stop.asked:
                        launches.close()
                        return
                    setting = launches.send(measured)
            except StopIteration:
                return

    @property
    def notes(self) -> tuple[str, ...]:
        """What disturbed launches, and how many: they count, since all settings of a round are disturbed alike."""
        total = sum(self._launches.values())
        return tuple(
            f"{self._flags[flag]} of {total} launches were {flag.value}: {flag.explanation}"
            for flag in _SHOWN_FLAGS
            if self._flags[flag]
        )

    def launcher(self, stop: StopRequest) -> AbstractContextManager[Launcher]:
        """For :meth:`measure`; leaves no process behind."""
        return open_launcher(self._planned.experiment, self._planned.plan, self._folder, stop, lambda _: None)

    def measure(
        self, setting: Setting, launcher: Launcher, on_launch: Callable[[str], None] = lambda _: None
    ) -> Measured:
        """The next launch of a setting: as the folder has it, or a new one."""
        experiment = _changed(self._planned.experiment, setting, self._known)
        entry = make_plan(experiment, self._planned.machine).cells[0]
        (cell,) = of_kind([entry.cell], TrainingCell)
        self.cells[setting] = cell
        if entry.skip_reason is not None:
            return Measured(None, 0.0, State.SKIPPED.value, entry.skip_reason)
        launch = self._launches.get(cell.id, 0)
        self._launches[cell.id] = launch + 1
        if launch == 0:
            file = self._file.model_copy(update={"plan": (PlannedCell(cell=cell),)})
            RunFolder.join(self._directory, file)
        record = self._folder.record(cell, launch)
        while self._folder.set_aside_notes:
            self._observer.note(f"warning: {self._folder.set_aside_notes.pop(0)}")
        if record is not None and record.state is State.INTERRUPTED:
            self._folder.set_aside(cell, launch, "replaced")
            record = None
        seconds = 0.0 if record is None else record.seconds
        if record is None:
            started = time.monotonic()
            record = launcher.run(Pending(cell, launch))
            seconds = time.monotonic() - started
            on_launch(_launch_line(setting, record, seconds))
        rate = _throughput(record)
        if rate is not None:
            self._flags.update(launch_flags(record, cell.measurement) & set(_SHOWN_FLAGS))
        return Measured(None if rate is None else math.log(rate), seconds, record.state.value, record.reason)


def _throughput(record: LaunchRecord) -> float | None:
    return samples_per_second(payload(record, TrainingResult)) if record.state is State.OK else None


def _launch_line(setting: Setting, record: LaunchRecord, seconds: float) -> str:
    """``fused=true: 1,234 samples/s (3.1 s)``, or the state and its reason."""
    name = " ".join(f"{change.axis}={change.value}" for change in setting) or "start"
    rate = _throughput(record)
    outcome = f"{record.state.value}: {record.reason}" if rate is None else f"{format_rate(rate)} samples/s"
    return f"{name}: {outcome} ({format_seconds(seconds)})"
