"""Runs every launch of every cell of a plan, into the run folder."""

from __future__ import annotations

import fnmatch
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from torchscale.analysis.stats.series import import_quantiles
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.config.sections.launch import ProfilingSettings
from torchscale.launch.agents.forker import AgentForker
from torchscale.launch.control import StopRequest
from torchscale.measure.early_start import shares_processes
from torchscale.measure.launcher import Pending, in_order, open_launcher
from torchscale.measure.listener import Listener
from torchscale.measure.nodes import SweepNodes
from torchscale.measure.profiling import CellProfiler
from torchscale.measure.summary_file import SummaryFile
from torchscale.plan.duration import runs_again
from torchscale.plan.expand import Plan
from torchscale.schema.cells.kinds import KINDS, AnyCell, training_workload
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder


class SweepExports(Protocol):
    """Writes a run for other programs while it is measured.

    Attributes:
        has_failed: Whether the copy of the run that was asked for is not complete.
    """

    has_failed: bool

    def cell_ended(self, summary: RunSummary) -> None:
        """The last launch of a cell has ended."""

    def sweep_ended(self, summary: RunSummary) -> None:
        """Nothing more is measured."""


class Sweep:
    """An experiment's plan in a run folder.

    Repeats are interleaved: every cell is launched once before any is launched again, so that a
    slow hour of the machine falls on all of them.
    """

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        folder: RunFolder,
        nodes: SweepNodes | None = None,
        ahead: AgentForker | None = None,
    ) -> None:
        """``nodes``: the others of a sweep over several; ``ahead``: a process for its launches that
        runs already. Counts the profiles that it records in :attr:`recorded`."""
        self._experiment, self._plan, self._folder, self._nodes = experiment, plan, folder, nodes
        self._ahead = ahead
        self._planned = {entry.cell.id: entry for entry in folder.experiment.plan}
        self._unfinished: dict[str, CellRun] = {}
        self.recorded = 0
        self._too_large: dict[str, int] = {}
        self._changed: dict[str, str] = {}

    def prepare(self, rerun: Rerun | None) -> tuple[Pending, ...]:
        """What is left to run. Records that cannot be read go to quarantine, and :attr:`notes` says
        which; those to be measured again are set aside.

        Raises:
            StoreError: a link leads out of the folder.
        """
        pending = []
        for launch in range(self._experiment.benchmark.repeats):
            for cell in self._plan.to_run:
                record = self._folder.record(cell, launch)
                if record is not None and runs_again(record.state, rerun):
                    self._folder.set_aside(cell, launch, "replaced")
                    record = None
                if record is None:
                    pending.append(Pending(cell, launch))
                else:
                    self._note_out_of_memory(cell, record)
                    self._note_changed_script(cell, record)
        return tuple(pending)

    @property
    def notes(self) -> tuple[str, ...]:
        """What :meth:`prepare` moved to quarantine, since it could not be read, and scripts of the
        user's that were changed after launches that are kept; a line each."""
        return (*self._folder.set_aside_notes, *self._changed.values())

    def _note_changed_script(self, cell: AnyCell, record: LaunchRecord) -> None:
        """A cell is known by its command line: what the file says now may not be what was
        measured."""
        trained = training_workload(cell)
        file = None if trained is None or trained.script is None else trained.script.file
        if file is None or file in self._changed:
            return
        try:
            changed = Path(file).stat().st_mtime
        except OSError:
            return
        if changed > datetime.fromisoformat(record.started_at).timestamp() + 1:
            self._changed[file] = (
                f"{file} was changed after launches that are kept; --rerun all measures them again"
            )

    def run(
        self,
        pending: tuple[Pending, ...],
        listener: Listener,
        stop: StopRequest,
        profiler: CellProfiler | None = None,
        exports: SweepExports | None = None,
    ) -> RunSummary:
        """Run what is pending until done or asked to stop; one launch's failure never ends the
        sweep. A launch that needs more nodes than are there is put off; what could not be run at
        all is left as it is, to be resumed.

        ``summary.csv`` is written before the first launch and after each: it holds all that the
        folder does. If it cannot be written, the sweep goes on and the summary's ``problems`` name
        the failure.

        With a ``profiler``, the cells that ``profiling.trigger`` asks for are profiled once all are
        measured. With ``exports``, the run is exported after the last launch of each cell, and at
        the end.
        """
        summary_file = SummaryFile(self._folder)
        summary_file.write()
        # While the first launch starts: afterwards the next one would wait for it.
        threading.Thread(target=import_quantiles, daemon=True).start()
        ordered = in_order(pending, shared=shares_processes(self._experiment, self._plan.device))
        left = Counter(item.cell.id for item in ordered)
        with open_launcher(
            self._experiment,
            self._plan,
            self._folder,
            stop,
            listener.launch_progress,
            pending=ordered,
            nodes=self._nodes,
            ahead=self._ahead,
        ) as launcher:
            for item in self._runnable(ordered):
                if stop.asked:
                    break
                listener.launch_started(item.cell, item.launch)
                record = self._skipped(item)
                if record is None:
                    record = launcher.run(item)
                else:
                    self._folder.begin_launch(item.cell, item.launch)
                    self._folder.finish_launch(item.cell, record)
                self._note_out_of_memory(item.cell, record)
                listener.launch_finished(
                    item.cell, record, summary_file.update(self._with_launch(item.cell, record))
                )
                left[item.cell.id] -= 1
                goes_on = not stop.asked and (profiler is not None or any(left.values()))
                if exports is not None and left[item.cell.id] == 0 and goes_on:
                    exports.cell_ended(summary_file.summary)
        if profiler is not None:
            for cell in self._profile(profiler, summary_file.summary, listener, stop):
                summary_file.update(self._folder.load_cell(self._planned[cell.id])[0])
        if exports is not None:
            exports.sweep_ended(summary_file.summary)
        return summary_file.summary

    def _runnable(self, ordered: Sequence[Pending]) -> Iterator[Pending]:
        """What can be run on the nodes that are there when it is asked for, in order."""
        left = deque(ordered)
        while left:
            if self._nodes is not None:
                self._nodes.update()
            item = next(
                (item for item in left if self._nodes is None or self._nodes.can_run(item.cell)),
                None,
            )
            if item is None:
                return
            left.remove(item)
            yield item

    def _with_launch(self, cell: AnyCell, record: LaunchRecord) -> CellRun:
        """The cell with a launch that has ended, which the folder holds already. Its records are
        kept in memory until all its launches have ended, so that each is read once."""
        cell_run = self._unfinished.pop(cell.id, None)
        if cell_run is None:
            cell_run, _ = self._folder.load_cell(self._planned[cell.id])
        launches = {earlier.launch: earlier for earlier in cell_run.launches}
        launches[record.launch] = record
        cell_run = CellRun(
            cell_run.planned, tuple(launches[index] for index in sorted(launches)), cell_run.profile
        )
        if len(launches) < self._experiment.benchmark.repeats:
            self._unfinished[cell.id] = cell_run
        return cell_run

    def _note_out_of_memory(self, cell: AnyCell, record: LaunchRecord) -> None:
        if record.state is State.OOM and self._experiment.benchmark.skip_larger_batches:
            batch, series = _batch_series(cell)
            self._too_large[series] = min(batch, self._too_large.get(series, batch))

    def _skipped(self, item: Pending) -> LaunchRecord | None:
        """The record of a launch that is not worth trying, where the config asks for that: a
        smaller batch of its series ran out of memory."""
        if not self._experiment.benchmark.skip_larger_batches:
            return None
        batch, series = _batch_series(item.cell)
        too_large = self._too_large.get(series)
        if too_large is None or too_large >= batch:
            return None
        return LaunchRecord(
            cell_id=item.cell.id,
            launch=item.launch,
            state=State.SKIPPED,
            reason=f"batch {too_large} ran out of memory",
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=0.0,
            payload=KINDS[item.cell.kind].payload(),
        )

    def _profile(
        self, profiler: CellProfiler, summary: RunSummary, listener: Listener, stop: StopRequest
    ) -> list[TrainingCell]:
        """Profile the cells that call for it and have no profile yet; a profile that fails leaves
        the cell's state as it is. Returns the cells that were profiled."""
        profiled: list[TrainingCell] = []
        settings = self._experiment.profiling
        if all(cell.cell.world_size == 1 for cell in summary.cells):
            settings = _without_other_ranks(settings)
        for cell in summary.cells:
            if stop.asked:
                break
            if not _calls_for_profile(cell, settings) or self._folder.has_profile(cell.cell):
                continue
            if self._plan.nodes_of(cell.cell.world_size) > 1:
                continue  # recordings are of one node
            listener.profile_started(cell.cell)
            self.recorded += 1
            directory = self._folder.begin_profile(cell.cell)
            profile = profiler.profile(cell.cell, directory, stop, listener.launch_progress)
            profiled.append(cell.cell)
            listener.profile_finished(cell.cell, profile.analysis, profile.problem)
        return profiled


def _without_other_ranks(settings: ProfilingSettings) -> ProfilingSettings:
    """Profiling settings for a run of single ranks: nothing can stall between ranks there, so that
    the rule for what to record would nearly always leave out everything that was to be profiled."""
    if settings.trigger != "sync_stall_detection":
        return settings
    return settings.model_copy(update={"trigger": "always"})


def _calls_for_profile(summary: TrainingSummary, settings: ProfilingSettings) -> bool:
    if summary.figures is None or not settings.enabled or settings.trigger == "never":
        return False
    if summary.cell.script is not None:  # ``profile -- COMMAND`` records a user's program
        return False
    if settings.trigger == "always":
        return True
    if settings.trigger == "sync_stall_detection":
        return summary.diagnosis is not None and bool(summary.diagnosis.findings)
    return any(fnmatch.fnmatchcase(summary.cell.id, pattern) for pattern in settings.trigger)


def _batch_series(cell: AnyCell) -> tuple[int, str]:
    """The batch size, and what is equal for cells that differ in it alone; no series for what
    trains nothing."""
    training = training_workload(cell)
    if training is None:
        return 0, cell.id
    return (
        training.batch_size or 0,
        f"{cell.kind} {training.model_dump_json(exclude={'batch_size'})}",
    )
