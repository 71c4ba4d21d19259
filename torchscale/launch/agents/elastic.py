"""Launches of a sweep on CPUs, each under torchrun's agent: a process that has imported torch forks
the agent of every launch, and the agent forks its ranks. What a ``torchrun`` command starts is
equal, but imports torch in every process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from torchscale.errors import OutputError, TorchscaleError
from torchscale.launch.agents.forker import AgentForker, own_path
from torchscale.launch.collect import collect_launch
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import LaunchEnding
from torchscale.launch.loopback import require_loopback
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import SharedSampler
from torchscale.launch.torchrun import (
    Watch,
    cell_environment,
    flatten_logs,
    worker_environment,
)
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import GroupItem, LaunchTask, ended_file
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_model, remove_tree
from torchscale.util.logs import open_log

_PROGRAM = "the process that starts torchrun's agent"


class ElasticLauncher:
    """Runs launches one after the other. Close it when done.

    The process that forks their agents is started by the first launch, and again where a launch has
    failed or needs another environment: what torch reads when it is imported is then as the launch
    asks.
    """

    def __init__(self, channel: Path, ahead: AgentForker | None = None) -> None:
        """
        Args:
            channel: A directory that this launcher alone uses, which it makes and removes.
            ahead: A process that was started before, which may serve the first launches.
        """
        self._channel, self._ahead = own_path(channel), ahead
        self._process: AgentForker | None = None
        self._sampler = SharedSampler(self._channel)
        self._launches = 0

    @property
    def was_used(self) -> bool:
        """Whether the process has run a launch, and may have imported what the next one does
        not."""
        return self._process is not None

    def run(
        self,
        task: LaunchTask,
        directory: Path,
        *,
        limits: LaunchLimits,
        extra_env: Mapping[str, str],
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> LaunchRecord:
        """Run ``task`` with its files in ``directory``. Returns the record.

        Raises:
            MachineError: the process cannot be started, or processes of this machine cannot reach
                each other.
            OutputError: the channel or ``directory`` cannot be written.
        """
        started = time.monotonic()
        kills = OomKills()
        environment = worker_environment(task, extra_env)
        own = {name: environment.pop(name) for name in cell_environment(task.cell)}
        process = self._start(environment)
        self._sampler.read(task.telemetry_seconds, task.gpu_uuids)
        atomic_write_model(directory / "task.json", task, durable=False)
        open_log(directory / "torchrun.log").close()  # if it cannot be made, say so here
        item = GroupItem(
            task=task, directory=str(directory.resolve()), cpu_sets=task.cpu_sets, environment=own
        )
        ended = self._channel / ended_file(self._launches)
        atomic_write_model(self._channel / f"item-{self._launches}.json", item, durable=False)
        process.bell.ring()
        self._launches += 1
        watch = Watch(
            directory,
            limits,
            stop,
            on_progress,
            world_size=task.cell.world_size,
            pause=process.bell.wait,
        )
        try:
            kind, detail = watch.wait(process, ended.exists)
        except BaseException:
            process.end(grace_seconds=0.0)
            raise
        if task.telemetry_seconds is not None:
            self._sampler.copy_new(task.started_at, directory)
        ending = LaunchEnding(kind, _status(ended), detail)
        if not ended.exists():
            survivors = stop.end(process)
            directory.mkdir(
                parents=True, exist_ok=True
            )  # user code can remove it, as long as it runs
            ending = LaunchEnding(kind, process.poll(), detail, survivors, _PROGRAM)
            _append(process.printed(), directory / "torchrun.log")
        flatten_logs(directory)
        record = collect_launch(
            task,
            directory,
            ending,
            command=tuple(process.command),
            started_at=datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(
                timespec="seconds"
            ),
            seconds=time.monotonic() - started,
            oom_kills=kills.since_start(),
        )
        if record.state is not State.OK:
            self.close()  # with what the launch may have left
        return record.model_copy(update={"forked": True})

    def close(self) -> None:
        """End the process and all below it."""
        self._sampler.close()
        for process in (self._process, self._ahead):
            if process is not None:
                process.close()
        self._process = self._ahead = None
        remove_tree(self._channel)

    def _start(self, environment: Mapping[str, str]) -> AgentForker:
        """The process that runs with this environment: the one there is, or a new one."""
        if self._process is not None and self._process.serves(self._channel, environment):
            return self._process
        ahead = None
        if self._ahead is not None and self._ahead.serves(self._channel, environment):
            ahead, self._ahead = self._ahead, None
        self.close()
        self._process = ahead
        require_loopback()
        try:
            self._channel.mkdir(parents=True)
        except OSError as error:
            raise OutputError(
                f"cannot create {self._channel}: {error.strerror or error}"
            ) from error
        self._launches = 0
        if self._process is None:
            try:
                self._process = AgentForker(self._channel, environment)
            except TorchscaleError:
                self.close()
                raise
        return self._process


def _status(ended: Path) -> int | None:
    """Exit status of a launch's agent; ``None`` where it did not come to its end."""
    try:
        return int(ended.read_text())
    except (OSError, ValueError):
        return None


def _append(printed: bytes, target: Path) -> None:
    """What the process that forks agents has printed, behind what the launch's agent has."""
    with suppress(OSError), target.open("ab") as log:
        log.write(printed)
