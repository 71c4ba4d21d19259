"""Launches of the settings that a search asks for, in a run folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic

from torchscale.analysis.training.flags import Flag, launch_flags
from torchscale.analysis.training.throughput import mean_step_seconds, samples_per_second
from torchscale.config.choices import TuningAxis
from torchscale.config.experiment import Experiment
from torchscale.config.strategies.data_parallel import Ddp
from torchscale.features.decide.tune.buckets import exposed_seconds, reduction
from torchscale.features.decide.tune.search import SettingSearch
from torchscale.features.decide.tune.settings import PREDICTED_MIB, SettingChange, bucket_candidate
from torchscale.features.decide.tune.surface import START, AxisChange, Setting
from torchscale.features.decide.tune.trials import SettingLaunch
from torchscale.launch.control import StopRequest
from torchscale.measure.context import PlannedRun
from torchscale.measure.launcher import Launcher, Pending, open_launcher
from torchscale.observer import Observer
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder
from torchscale.util.units import format_rate, format_seconds

_SHOWN_FLAGS = (Flag.CONTENDED, Flag.THROTTLED)
"""The others are of short launches, which the search takes several of."""
_ENDED_FROM_OUTSIDE = (State.INTERRUPTED, State.KILLED, State.NODE_LOST)
_MIB = 1 << 20
_LEAST_PREDICTED_GAIN = 0.01
"""Share of a step that a bucket size must be predicted to save: less would not be seen."""
_PREDICTED_TRIED = 2
"""Bucket sizes that are tried of those predicted to be better: neighbors differ by less than the
prediction errs."""


def with_changes(
    experiment: Experiment, setting: Setting, known: Mapping[AxisChange, SettingChange]
) -> Experiment:
    """The experiment with the changes of a setting."""
    for change in setting:
        experiment = known[change].apply(experiment)
    return experiment


class SettingLauncher:
    """Turns settings into launches in a run folder; launches that are there already are not
    repeated.

    Attributes:
        cells: Setting → its cell.
        predicted_exposed_seconds: Bucket size → predicted exposed gradient sync of a step, once
            :meth:`choose` was asked.
        tokens_per_sample: Length of a sequence; ``None`` where samples have no tokens, and before
            the first launch.
    """

    def __init__(
        self,
        planned: PlannedRun,
        directory: Path,
        known: Mapping[AxisChange, SettingChange],
        observer: Observer,
        refuse: Callable[[TrainingCell], str | None] = lambda _: None,
        *,
        keeps_oom: bool = False,
    ) -> None:
        """
        Args:
            planned: The experiment to start from.
            directory: The run folder.
            known: Changes by name.
            observer: Shows messages.
            refuse: Why a cell that could run is not launched; ``None`` where it is.
            keeps_oom: Whether a start that ran out of memory is not launched again.
        """
        self._refuse, self._keeps_oom = refuse, keeps_oom
        self._planned, self._directory, self._known, self._observer = (
            planned,
            directory,
            known,
            observer,
        )
        self._file = planned.experiment_file().model_copy(update={"plan": ()})
        self._folder = RunFolder.create(directory, self._file)
        self._entries: dict[Setting, PlannedCell] = {}
        self._launches: dict[str, int] = {}
        self._flags: Counter[Flag] = Counter()
        self._results: dict[Setting, TrainingResult] = {}
        self.tokens_per_sample: float | None = None
        self.predicted_exposed_seconds: dict[str, float] = {}
        self.cells: dict[Setting, TrainingCell] = {}

    def run(
        self, search: SettingSearch, stop: StopRequest, on_launch: Callable[[str], None]
    ) -> None:
        """Drive the search to its end, or until asked to stop."""
        launches = search.launches()
        with self.launcher(stop) as launcher:
            try:
                setting = next(launches)
                told = False
                while True:
                    measured = self.measure(setting, launcher, on_launch)
                    if stop.asked:
                        launches.close()
                        return
                    setting = launches.send(measured)
                    if not told and not measured.recorded:
                        on_launch(_forecast_line(search))
                        told = True
            except StopIteration:
                return

    @property
    def notes(self) -> tuple[str, ...]:
        """What disturbed launches, and how many: they count, since all settings of a round are
        disturbed alike."""
        total = sum(self._launches.values())
        return tuple(
            f"{self._flags[flag]} of {total} launches were {flag.value}: {flag.explanation}"
            for flag in _SHOWN_FLAGS
            if self._flags[flag]
        )

    def choose(
        self, axis: str, changes: Sequence[AxisChange], probe: Setting
    ) -> Sequence[AxisChange]:
        """Choose which changes of an axis to try. Of bucket sizes these are those with the least
        predicted exposed sync, if it is less than the start's; all changes where nothing can be
        predicted: without times of gradients, or where all fit one bucket."""
        strategy = self._planned.experiment.parallel.strategy[0]
        if axis != TuningAxis.BUCKET.value or not isinstance(strategy, Ddp):
            return changes
        signals = self._results[probe].ranks[0].signals
        if signals is None or signals.link is None:
            return changes
        sizes, ready = signals.bucket_bytes or (), signals.bucket_ready_seconds or ()
        cost = reduction(signals.link, len(sizes))
        if cost is None or len(sizes) != len(ready):
            return changes
        exposed = {
            size: exposed_seconds(sizes, ready, size * _MIB, cost)
            for size in {*PREDICTED_MIB, strategy.bucket_cap_mb}
        }
        self.predicted_exposed_seconds = {
            f"{size:g} MiB": exposed[size] for size in sorted(exposed)
        }
        needed = exposed[strategy.bucket_cap_mb] - _LEAST_PREDICTED_GAIN * mean_step_seconds(
            self._results[START]
        )
        better = sorted((seconds, size) for size, seconds in exposed.items() if seconds < needed)
        chosen = [
            AxisChange(axis, bucket_candidate(size).value) for _, size in better[:_PREDICTED_TRIED]
        ]
        return [*chosen, *(change for change in changes if not change.value.endswith("MiB"))]

    def is_recorded(self, setting: Setting) -> bool:
        """Whether the folder has the next launch of a setting."""
        cell = self._entry(setting).cell
        record = self._folder.record(cell, self._launches.get(cell.id, 0))
        return record is not None and not self._runs_again(setting, record)

    def _entry(self, setting: Setting) -> PlannedCell:
        if setting not in self._entries:
            experiment = with_changes(self._planned.experiment, setting, self._known)
            entry = make_plan(experiment, self._planned.machine).cells[0]
            (cell,) = of_kind([entry.cell], TrainingCell)
            reason = entry.skip_reason or self._refuse(cell)
            self._entries[setting] = entry.model_copy(update={"skip_reason": reason})
        return self._entries[setting]

    def launcher(self, stop: StopRequest) -> AbstractContextManager[Launcher]:
        """The launcher for :meth:`measure`; leaves no process behind."""
        return open_launcher(
            self._planned.experiment, self._planned.plan, self._folder, stop, lambda _: None
        )

    def measure(
        self,
        setting: Setting,
        launcher: Launcher,
        on_launch: Callable[[str], None] = lambda _: None,
    ) -> SettingLaunch:
        """The next launch of a setting: as the folder has it, or a new one."""
        entry = self._entry(setting)
        (cell,) = of_kind([entry.cell], TrainingCell)
        self.cells[setting] = cell
        if entry.skip_reason is not None:
            return SettingLaunch(None, 0.0, State.SKIPPED.value, entry.skip_reason)
        launch = self._launches.get(cell.id, 0)
        self._launches[cell.id] = launch + 1
        if launch == 0:
            file = self._file.model_copy(update={"plan": (PlannedCell(cell=cell),)})
            RunFolder.join(self._directory, file)
        record = self._folder.record(cell, launch)
        while self._folder.set_aside_notes:
            self._observer.note(f"warning: {self._folder.set_aside_notes.pop(0)}")
        if record is not None and self._runs_again(setting, record):
            self._folder.set_aside(cell, launch, "replaced")
            record = None
        recorded = record is not None
        seconds = 0.0 if record is None else record.seconds
        if record is None:
            started = monotonic()
            record = launcher.run(Pending(cell, launch))
            seconds = monotonic() - started
            on_launch(_launch_line(setting, record, seconds))
        rate = _throughput(record)
        if rate is not None:
            self._results[setting] = result = payload(record, TrainingResult)
            self.tokens_per_sample = _tokens_per_sample(result)
            self._flags.update(launch_flags(record, cell.measurement) & set(_SHOWN_FLAGS))
        log = None if rate is None else math.log(rate)
        return SettingLaunch(log, seconds, record.state.value, record.reason, recorded=recorded)

    def _runs_again(self, setting: Setting, record: LaunchRecord) -> bool:
        """Whether a launch of an earlier session is measured again: it was ended from outside,
        which says nothing about its setting, or it is a failed one of the start, without which no
        session could go on."""
        if record.state is State.OOM and self._keeps_oom:
            return False
        return record.state in _ENDED_FROM_OUTSIDE or (
            setting == START and record.state is not State.OK
        )


def _throughput(record: LaunchRecord) -> float | None:
    return samples_per_second(payload(record, TrainingResult)) if record.state is State.OK else None


def _tokens_per_sample(result: TrainingResult) -> float | None:
    first = result.ranks[0]
    if first.tokens_per_step is None or not first.samples_per_step:
        return None
    return first.tokens_per_step / first.samples_per_step


def _forecast_line(search: SettingSearch) -> str:
    """``A launch takes about 4.9 s, so the budget of 40.0 s allows about 8; an answer takes at
    least 11 more (58.8 s).``, after the first launch that is new."""
    seconds = search.launch_seconds or 0.0
    count = max(1, int(search.budget_seconds // seconds)) if seconds else 1
    return (
        f"A launch takes about {format_seconds(seconds)}, so the budget of "
        f"{format_seconds(search.budget_seconds)} allows about {count:,}; an answer takes at least "
        f"{search.launches_needed} more ({format_seconds(search.seconds_needed)})."
    )


def _launch_line(setting: Setting, record: LaunchRecord, seconds: float) -> str:
    """``fused=true: 1,234 samples/s (3.1 s)``, or the state and its reason."""
    name = " ".join(f"{change.axis}={change.value}" for change in setting) or "start"
    rate = _throughput(record)
    outcome = (
        f"{record.state.value}: {record.reason}"
        if rate is None
        else f"{format_rate(rate)} samples/s"
    )
    return f"{name}: {outcome} ({format_seconds(seconds)})"
