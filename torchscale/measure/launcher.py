"""Runs the launches of a sweep: each in processes of its own, new or forked, or in those of the
launches before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchscale.catalog.model_facts import OptionValue
from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.door import Slot
from torchscale.launch.agents.elastic import ElasticLauncher
from torchscale.launch.agents.forker import AgentForker, forks_ranks
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.launch.group import LaunchGroup
from torchscale.launch.run import run_launch
from torchscale.launch.torchrun import cell_environment
from torchscale.measure.early_start import GROUP, shares_processes
from torchscale.measure.nodes import SweepNodes
from torchscale.plan.expand import Plan
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell, model_key
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder
from torchscale.util.files import remove_tree


class ScriptLaunch(Protocol):
    """What a feature offers that runs a user's own script as a launch, and measures it from
    outside."""

    def __call__(
        self,
        task: LaunchTask,
        directory: Path,
        *,
        limits: LaunchLimits,
        extra_env: Mapping[str, str],
        hidden: Mapping[str, OptionValue],
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> LaunchRecord:
        """Run the script of a task's cell; arguments as of
        :func:`~torchscale.launch.run.run_launch`, and ``hidden``: what stands in place of a
        secret → the value.

        Raises:
            OutputError: ``directory`` cannot be written.
        """


_SCRIPTS: Slot[ScriptLaunch] = Slot("scripts")


@dataclass(frozen=True)
class Pending:
    """A launch that is still to be run."""

    cell: AnyCell
    launch: int

    @property
    def kind(self) -> tuple[bool, tuple[tuple[str, str], ...]]:
        """What is set once in a process: equal for launches that can share processes."""
        return self.cell.deterministic, tuple(cell_environment(self.cell).items())


def in_order(pending: tuple[Pending, ...], *, shared: bool) -> tuple[Pending, ...]:
    """The pending launches in the order of the plan; where launches share processes, those that can
    do so follow each other."""
    if not shared:
        return pending
    return tuple(sorted(pending, key=lambda item: (item.launch, item.kind)))


class Launcher:
    """Runs launches one at a time and keeps their records. Made by :func:`open_launcher`."""

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        folder: RunFolder,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
        *,
        pending: Sequence[Pending] = (),
        nodes: SweepNodes | None = None,
        ahead: AgentForker | None = None,
    ) -> None:
        settings = experiment.launch
        self._plan, self._folder, self._stop, self._on_progress = plan, folder, stop, on_progress
        self._env, self._log_steps = (
            hidden_environment(experiment),
            experiment.benchmark.log_step_times,
        )
        self._hidden = experiment.hidden
        telemetry = experiment.telemetry
        self._telemetry_seconds = telemetry.interval_seconds if telemetry.enabled else None
        self._limits = LaunchLimits(
            timeout_seconds=settings.timeout_seconds,
            stall_seconds=settings.stall_timeout_seconds,
            budget_seconds=experiment.benchmark.cell_seconds,
        )
        self._shares = shares_processes(experiment, plan.device)
        self._forks: ElasticLauncher | None = None
        if self._shares and forks_ranks(plan.device):
            self._forks = ElasticLauncher(folder.path / GROUP, ahead)
        self._counted: set[str] = set()
        self._pending, self._nodes = pending, nodes
        self._group: LaunchGroup | None = None
        self._key: object = None

    def run(self, item: Pending) -> LaunchRecord:
        """Run a launch to its end; its record is written. One that fails in processes which ran
        others before it, or in forks of one which imported for others, runs again in new ones, and
        what these say counts."""
        trained = as_kind(item.cell, TrainingCell)
        if trained is not None and trained.script is not None:
            record = self._run_script(item)
        elif self._nodes is not None and (self._nodes.run_all or self._spans_nodes(item.cell)):
            record = self._run_over_nodes(item, self._nodes)
        elif self._forks is not None:
            record = self._run_forked(item, self._forks)
        elif self._shares:
            record = self._run_grouped(item)
        else:
            record = self._run_alone(item)
        self._folder.finish_launch(item.cell, record)
        if trained is not None and record.payload.ranks:
            self._counted.add(model_key(trained))
        return record

    def close(self) -> None:
        """End the processes that wait for more."""
        if self._group is not None:
            self._group.close()
        self._group = None
        if self._forks is not None:
            self._forks.close()

    def _run_forked(self, item: Pending, forks: ElasticLauncher) -> LaunchRecord:
        def run() -> LaunchRecord:
            return forks.run(
                self._task(item),
                self._folder.begin_launch(item.cell, item.launch),
                limits=self._limits,
                extra_env=self._env,
                stop=self._stop,
                on_progress=self._on_progress,
            )

        was_used = forks.was_used
        record = run()
        if was_used and record.state is not State.OK and not self._stop.asked:
            record = run()
        return record

    def _run_alone(self, item: Pending) -> LaunchRecord:
        return run_launch(
            self._task(item),
            self._folder.begin_launch(item.cell, item.launch),
            limits=self._limits,
            extra_env=self._env,
            stop=self._stop,
            on_progress=self._on_progress,
        )

    def _run_script(self, item: Pending) -> LaunchRecord:
        """A user's own script: always a command of its own."""
        if self._group is not None:  # processes that wait hold memory of the devices
            self._group.close()
        self._group = None
        return _SCRIPTS["watch"](
            self._task(item),
            self._folder.begin_launch(item.cell, item.launch),
            limits=self._limits,
            extra_env=self._env,
            hidden=self._hidden,
            stop=self._stop,
            on_progress=self._on_progress,
        )

    def _run_over_nodes(self, item: Pending, nodes: SweepNodes) -> LaunchRecord:
        self.close()  # processes that wait would use the cores and devices of this launch
        return nodes.run(
            self._task(item),
            self._folder.begin_launch(item.cell, item.launch),
            limits=self._limits,
            extra_env=self._env,
            stop=self._stop,
            on_progress=self._on_progress,
        )

    def _spans_nodes(self, cell: AnyCell) -> bool:
        return self._plan.nodes_of(cell.world_size) > 1

    def _run_grouped(self, item: Pending) -> LaunchRecord:
        if self._key != (item.kind, self._processes(item)):
            self.close()
        shared = self._group is not None
        record = self._run_in_group(item)
        if shared and record.state is not State.OK and not self._stop.asked:
            record = self._run_in_group(item)
        return record

    def _run_in_group(self, item: Pending) -> LaunchRecord:
        """Run a launch in the processes that wait, or in new ones; a failure ends them."""
        directory = self._folder.begin_launch(item.cell, item.launch)
        if self._group is None:
            processes = self._processes(item)
            self._group = LaunchGroup(
                self._task(item),
                self._folder.path / GROUP,
                self._env,
                processes=processes,
                cpu_sets=self._plan.cpu_sets(processes),
            )
            self._key = (item.kind, processes)
        record = self._group.run(
            self._task(item),
            directory,
            limits=self._limits,
            stop=self._stop,
            on_progress=self._on_progress,
        )
        if record.state is not State.OK:
            self.close()
        return record

    def _processes(self, item: Pending) -> int:
        """Processes that run this launch and all others of its kind: as many as the largest of them
        has ranks. A launch of fewer ranks uses the first, if those have the cores that they would
        have by themselves."""
        own = item.cell.world_size

        def is_prefix(size: int) -> bool:
            mine, theirs = self._plan.cpu_sets(own), self._plan.cpu_sets(size)
            return mine == (None if theirs is None else theirs[:own])

        sizes = {
            other.cell.world_size
            for other in self._pending
            if other.kind == item.kind and not self._spans_nodes(other.cell)
        }
        alike = {
            size
            for size in sizes
            if self._plan.is_oversubscribed(size) == self._plan.is_oversubscribed(own)
        }
        return max((size for size in alike if size >= own and is_prefix(size)), default=own)

    def _task(self, item: Pending) -> LaunchTask:
        """The task of a launch, for a start at this moment. Operations are counted once for each
        model of a sweep."""
        trained = as_kind(item.cell, TrainingCell)
        return launch_task(
            self._plan,
            item.cell,
            self._limits,
            launch=item.launch,
            log_step_times=self._log_steps,
            telemetry_seconds=None if trained is None else self._telemetry_seconds,
            counts_flops=trained is not None and model_key(trained) not in self._counted,
        )


@contextmanager
def open_launcher(
    experiment: Experiment,
    plan: Plan,
    folder: RunFolder,
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
    *,
    pending: Sequence[Pending] = (),
    nodes: SweepNodes | None = None,
    ahead: AgentForker | None = None,
) -> Iterator[Launcher]:
    """A launcher that leaves no process behind. ``pending``: what it will run, for processes that
    many launches can share; ``nodes``: for launches over several; ``ahead``: from
    :func:`started_ahead`. What processes of a killed session left in the folder is removed."""
    remove_tree(folder.path / GROUP)
    launcher = Launcher(
        experiment, plan, folder, stop, on_progress, pending=pending, nodes=nodes, ahead=ahead
    )
    try:
        yield launcher
    finally:
        launcher.close()
