"""The loop: every launch of every cell of a plan, into the store, with word of what happens."""

from __future__ import annotations

import fnmatch
from datetime import datetime, timezone
from enum import Enum
from typing import Protocol

from torchscale.analysis.results import AnySummary, CellSummary, RunSummary, summarize, summarize_any
from torchscale.launch.torchrun import StopRequest
from torchscale.launcher import Pending, in_order, open_launcher
from torchscale.plan import Plan
from torchscale.profiling import CellProfiler, Profile
from torchscale.report.export import summary_csv
from torchscale.schema.cell import Cell
from torchscale.schema.config import Experiment, Profiling
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.memory import MemoryCell
from torchscale.schema.progress import Progress
from torchscale.schema.record import LaunchRecord, State
from torchscale.schema.run import CellRun, Run
from torchscale.schema.task import AnyCell
from torchscale.store import RunFolder, atomic_write_text


class Rerun(str, Enum):
    """Which completed launches are measured again; the earlier ones are set aside, not deleted."""

    FAILED = "failed"
    ALL = "all"


class Listener(Protocol):
    """Who wants to know what the sweep does."""

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        """A launch begins."""

    def launch_progress(self, progress: Progress) -> None:
        """The launch that runs has something to say."""

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: AnySummary) -> None:
        """A launch has ended; ``summary`` is of its cell so far."""

    def profile_started(self, cell: Cell) -> None:
        """A recording of a measured cell begins."""

    def profile_finished(self, cell: Cell, profile: Profile) -> None:
        """It has ended, with an analysis or a problem."""


class Sweep:
    """An experiment's plan in a run folder.

    Repeats are interleaved: every cell is launched once before any is launched again, so that a slow hour of the
    machine falls on all of them.
    """

    def __init__(self, experiment: Experiment, plan: Plan, folder: RunFolder) -> None:
        self._experiment, self._plan, self._folder = experiment, plan, folder
        self._records: dict[str, dict[int, LaunchRecord]] = {}

    def prepare(self, rerun: Rerun | None) -> tuple[Pending, ...]:
        """What is left to run. Damaged records go to quarantine, those to be measured again are set aside."""
        pending = []
        for launch in range(self._experiment.benchmark.repeats):
            for cell in self._plan.to_run:
                record = self._folder.record(cell, launch)
                if record is not None and _runs_again(record, rerun):
                    self._folder.set_aside(cell, launch, "replaced")
                    record = None
                if record is None:
                    pending.append(Pending(cell, launch))
                else:
                    self._records.setdefault(cell.id, {})[launch] = record
        return tuple(pending)

    def run(
        self,
        pending: tuple[Pending, ...],
        listener: Listener,
        stop: StopRequest,
        profiler: CellProfiler | None = None,
    ) -> RunSummary:
        """Run what is pending until done or asked to stop; one launch's failure never ends the sweep.

        With a ``profiler``, the cells that ``profiling.trigger`` asks for are profiled once all are measured.
        """
        with open_launcher(self._experiment, self._plan, self._folder, stop, listener.launch_progress) as launcher:
            for item in in_order(pending, self._experiment):
                if stop.asked:
                    break
                listener.launch_started(item.cell, item.launch)
                record = self._skipped(item)
                if record is None:
                    record = launcher.run(item)
                else:
                    self._folder.begin_launch(item.cell, item.launch)
                    self._folder.finish_launch(item.cell, record)
                self._records.setdefault(item.cell.id, {})[item.launch] = record
                self._write_summary(summarize(self._run_so_far()))
                listener.launch_finished(item.cell, record, summarize_any(self._cell_run(PlannedCell(cell=item.cell))))
        summary = summarize(self._folder.load())
        self._write_summary(summary)
        if profiler is not None and self._profile(profiler, summary, listener, stop):
            summary = summarize(self._folder.load())
        return summary

    def _skipped(self, item: Pending) -> LaunchRecord | None:
        """The record of a launch that is not worth trying, where the config asks for that: a smaller batch of its
        series ran out of memory."""
        if not self._experiment.benchmark.skip_larger_batches:
            return None
        batch, series = _batch_series(item.cell)
        for entry in self._plan.cells:
            smaller, other = _batch_series(entry.cell)
            records = self._records.get(entry.cell.id, {}).values()
            if other == series and smaller < batch and any(record.state is State.OOM for record in records):
                return LaunchRecord(
                    cell_id=item.cell.id,
                    launch=item.launch,
                    state=State.SKIPPED,
                    reason=f"batch {smaller} ran out of memory",
                    started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    seconds=0.0,
                )
        return None

    def _profile(
        self, profiler: CellProfiler, summary: RunSummary, listener: Listener, stop: StopRequest
    ) -> list[Profile]:
        """Profile the cells that call for it and have none yet; a profile that fails costs no cell its state."""
        found = []
        for cell in summary.cells:
            if stop.asked:
                break
            if not _calls_for_profile(cell, self._experiment.profiling) or self._folder.has_profile(cell.cell):
                continue
            listener.profile_started(cell.cell)
            directory = self._folder.begin_profile(cell.cell)
            found.append(profiler.profile(cell.cell, directory, stop, listener.launch_progress))
            listener.profile_finished(cell.cell, found[-1])
        return found

    def _cell_run(self, planned: PlannedCell) -> CellRun:
        launches = self._records.get(planned.cell.id, {})
        return CellRun(planned, tuple(launches[index] for index in sorted(launches)))

    def _run_so_far(self) -> Run:
        """The folder's content without reading it again after every launch."""
        experiment = self._folder.experiment
        return Run(self._folder.path.name, experiment, tuple(self._cell_run(entry) for entry in experiment.plan))

    def _write_summary(self, summary: RunSummary) -> None:
        atomic_write_text(self._folder.path / "summary.csv", summary_csv(summary))


def _calls_for_profile(summary: CellSummary, settings: Profiling) -> bool:
    if summary.figures is None or not settings.enabled or settings.trigger == "never":
        return False
    if settings.trigger == "always":
        return True
    if settings.trigger == "sync_stall_detection":
        return summary.diagnosis is not None and bool(summary.diagnosis.findings)
    return any(fnmatch.fnmatchcase(summary.cell.id, pattern) for pattern in settings.trigger)


def _batch_series(cell: AnyCell) -> tuple[int, str]:
    """The batch size, and what is equal for cells that differ in it alone; no series for what trains nothing."""
    training = cell.training if isinstance(cell, MemoryCell) else cell
    if not isinstance(training, Cell):
        return 0, cell.id
    return training.batch_size, f"{cell.kind} {training.model_dump_json(exclude={'batch_size'})}"


def _runs_again(record: LaunchRecord, rerun: Rerun | None) -> bool:
    if rerun is Rerun.ALL or record.state is State.INTERRUPTED:
        return True
    return rerun is Rerun.FAILED and record.state is not State.OK
