"""The loop: every launch of every cell of a plan, into the store, with word of what happens."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torchscale.analysis.results import CellSummary, RunSummary, summarize, summarize_cell
from torchscale.launch.group import Group
from torchscale.launch.torchrun import LaunchLimits, StopRequest, run_launch
from torchscale.plan import Plan
from torchscale.profiling import CellProfiler, Profile
from torchscale.report.export import summary_csv
from torchscale.schema.cell import Cell, LaunchTask
from torchscale.schema.config import Experiment, Profiling
from torchscale.schema.experiment import PlannedCell
from torchscale.schema.progress import Progress
from torchscale.schema.record import LaunchRecord, State
from torchscale.schema.run import CellRun, Run
from torchscale.store import RunFolder, atomic_write_text


class Rerun(str, Enum):
    """Which completed launches are measured again; the earlier ones are set aside, not deleted."""

    FAILED = "failed"
    ALL = "all"


class Listener(Protocol):
    """Who wants to know what the sweep does."""

    def launch_started(self, cell: Cell, launch: int) -> None:
        """A launch begins."""

    def launch_progress(self, progress: Progress) -> None:
        """The launch that runs has something to say."""

    def launch_finished(self, cell: Cell, record: LaunchRecord, summary: CellSummary) -> None:
        """A launch has ended; ``summary`` is of its cell so far."""

    def profile_started(self, cell: Cell) -> None:
        """A recording of a measured cell begins."""

    def profile_finished(self, cell: Cell, profile: Profile) -> None:
        """It has ended, with an analysis or a problem."""


@dataclass(frozen=True)
class Pending:
    """A launch that is still to be run."""

    cell: Cell
    launch: int


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
        with self._runner(listener, stop) as run:
            for item in self._in_order(pending):
                if stop.asked:
                    break
                listener.launch_started(item.cell, item.launch)
                record = run(item)
                self._records.setdefault(item.cell.id, {})[item.launch] = record
                self._write_summary(summarize(self._run_so_far()))
                listener.launch_finished(item.cell, record, summarize_cell(self._cell_run(PlannedCell(cell=item.cell))))
        summary = summarize(self._folder.load())
        self._write_summary(summary)
        if profiler is not None and self._profile(profiler, summary, listener, stop):
            summary = summarize(self._folder.load())
        return summary

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

    def _in_order(self, pending: tuple[Pending, ...]) -> list[Pending]:
        """As planned; with ``launch.isolation: group``, launches that can share processes follow each other."""
        if self._experiment.launch.isolation == "cell":
            return list(pending)
        return sorted(pending, key=lambda item: (item.launch, *_group_key(item)))

    @contextmanager
    def _runner(self, listener: Listener, stop: StopRequest) -> Iterator[Callable[[Pending], LaunchRecord]]:
        """What runs one launch, by itself or in a group; nothing is left running afterwards."""
        if self._experiment.launch.isolation == "cell":
            yield lambda item: self._launch(item, listener, stop)
            return
        groups = _Groups(self, listener, stop)
        try:
            yield groups.run
        finally:
            groups.close()

    def _launch(self, item: Pending, listener: Listener, stop: StopRequest) -> LaunchRecord:
        directory = self._folder.begin_launch(item.cell, item.launch)
        record = run_launch(
            self.task(item),
            directory,
            limits=self.limits,
            extra_env=self.extra_env,
            stop=stop,
            on_progress=listener.launch_progress,
        )
        self._folder.finish_launch(item.cell, record)
        return record

    def launch_in(self, group: Group, item: Pending, listener: Listener, stop: StopRequest) -> LaunchRecord:
        """Run one launch in a group's processes; the record is not written yet."""
        directory = self._folder.begin_launch(item.cell, item.launch)
        return group.run(
            self.task(item), directory, limits=self.limits, stop=stop, on_progress=listener.launch_progress
        )

    def keep(self, item: Pending, record: LaunchRecord) -> LaunchRecord:
        """Write a launch's record."""
        self._folder.finish_launch(item.cell, record)
        return record

    @property
    def extra_env(self) -> Mapping[str, str]:
        """Variables for the ranks."""
        return self._experiment.launch.env

    @property
    def limits(self) -> LaunchLimits:
        """Bounds of every launch."""
        settings = self._experiment.launch
        return LaunchLimits(
            timeout_seconds=settings.timeout_seconds,
            stall_seconds=settings.stall_timeout_seconds,
            budget_seconds=self._experiment.benchmark.cell_seconds,
        )

    def task(self, item: Pending) -> LaunchTask:
        """What the ranks of a launch are told, as of now."""
        plan, world_size = self._plan, item.cell.world_size
        return LaunchTask(
            cell=item.cell,
            launch=item.launch,
            device=plan.device,
            device_indices=plan.device_indices_of(world_size),
            cpu_sets=plan.cpu_sets(world_size),
            own_cores=plan.device == "cpu" and not plan.is_oversubscribed(world_size),
            oversubscribed=plan.is_oversubscribed(world_size),
            threads_per_rank=plan.threads_per_rank,
            started_at=time.time(),
            budget_seconds=self.limits.budget_seconds,
            collective_timeout_seconds=self.limits.collective_seconds,
            log_step_times=self._experiment.benchmark.log_step_times,
        )

    def _cell_run(self, planned: PlannedCell) -> CellRun:
        launches = self._records.get(planned.cell.id, {})
        return CellRun(planned, tuple(launches[index] for index in sorted(launches)))

    def _run_so_far(self) -> Run:
        """The folder's content without reading it again after every launch."""
        experiment = self._folder.experiment
        return Run(self._folder.path.name, experiment, tuple(self._cell_run(entry) for entry in experiment.plan))

    def _write_summary(self, summary: RunSummary) -> None:
        atomic_write_text(self._folder.path / "summary.csv", summary_csv(summary))


class _Groups:
    """Runs launches in the processes of those before them, as long as these are of the same kind and nothing fails.

    A launch that fails after others of its group runs again in processes of its own: what they say counts.
    """

    def __init__(self, sweep: Sweep, listener: Listener, stop: StopRequest) -> None:
        self._sweep, self._listener, self._stop = sweep, listener, stop
        self._group: Group | None = None
        self._key: tuple[object, ...] = ()

    def run(self, item: Pending) -> LaunchRecord:
        """Run one launch and keep its record."""
        if self._group is not None and self._key != _group_key(item):
            self.close()
        shared = self._group is not None
        record = self._run_in_group(item)
        if shared and record.state not in (State.OK, State.INTERRUPTED) and not self._stop.asked:
            record = self._run_in_group(item)
        return self._sweep.keep(item, record)

    def close(self) -> None:
        """End the group's processes."""
        if self._group is not None:
            self._group.close()
        self._group = None

    def _run_in_group(self, item: Pending) -> LaunchRecord:
        if self._group is None:
            self._group, self._key = Group(self._sweep.task(item), self._sweep.extra_env), _group_key(item)
        record = self._sweep.launch_in(self._group, item, self._listener, self._stop)
        if record.state is not State.OK:
            self.close()
        return record


def _group_key(item: Pending) -> tuple[int, bool]:
    """Equal for launches that can run in the same processes."""
    return item.cell.world_size, item.cell.deterministic


def _calls_for_profile(summary: CellSummary, settings: Profiling) -> bool:
    if summary.figures is None or not settings.enabled or settings.trigger == "never":
        return False
    if settings.trigger == "always":
        return True
    if settings.trigger == "sync_stall_detection":
        return summary.diagnosis is not None and bool(summary.diagnosis.findings)
    return any(fnmatch.fnmatchcase(summary.cell.id, pattern) for pattern in settings.trigger)


def _runs_again(record: LaunchRecord, rerun: Rerun | None) -> bool:
    if rerun is Rerun.ALL or record.state is State.INTERRUPTED:
        return True
    return rerun is Rerun.FAILED and record.state is not State.OK
