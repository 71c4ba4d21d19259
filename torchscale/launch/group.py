"""One torchrun for many launches: its ranks run them one after the other, so that short cells do
not pay for each start.

The launcher writes each launch to a file, and the ranks write their records as usual. Any failure
ends the whole group; the caller decides whether the launch is repeated.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

import psutil

from torchscale.errors import OutputError, TorchscaleError
from torchscale.launch.collect import collect_launch
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.loopback import require_loopback
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import SharedSampler
from torchscale.launch.torchrun import (
    Watch,
    flatten_logs,
    torchrun_command,
    worker_environment,
)
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import GroupItem, LaunchTask
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_model, atomic_write_text, remove_tree
from torchscale.util.logs import keep_log, open_log
from torchscale.util.processes.description import is_running
from torchscale.util.processes.subprocesses import ManagedProcess, wait_until

_END_SECONDS = 20.0
"""Ranks look for the end file every 10 ms and then leave their process group; after this long they
are killed."""


class LaunchGroup:
    """A torchrun whose processes wait for launches of as many ranks or fewer. Close it when
    done."""

    def __init__(
        self,
        task: LaunchTask,
        channel: Path,
        extra_env: Mapping[str, str],
        *,
        processes: int | None = None,
        cpu_sets: tuple[tuple[int, ...], ...] | None = None,
    ) -> None:
        """Start the processes with the threads and the environment of ``task``, which is to be the
        first one to run.

        Args:
            task: The first launch.
            channel: A directory that only this group uses: it is emptied now and removed when the
                group closes.
            extra_env: Variables of the user's.
            processes: How many; as many as ``task`` has ranks by default. A launch of fewer ranks
                uses the first ones, the others wait.
            cpu_sets: Cores of each process; those of ``task`` by default.

        Raises:
            MachineError: torchrun cannot be started.
            OutputError: ``channel`` cannot be created or written.
        """
        remove_tree(channel)
        try:
            channel.mkdir(parents=True)
        except OSError as error:
            raise OutputError(f"cannot create {channel}: {error.strerror or error}") from error
        self._channel = (
            channel.parent.resolve() / channel.name
        )  # not where a link in its place leads
        self._cpu_sets = task.cpu_sets if cpu_sets is None else cpu_sets
        processes = task.cell.world_size if processes is None else processes
        self._command = torchrun_command(processes, self._channel, "--group", str(self._channel))
        self._sampler = SharedSampler(self._channel)
        self._launches = 0
        self._last: Path | None = None
        self._copied: dict[Path, int] = {}
        environment = {
            **worker_environment(task, extra_env),
            "PYTHONUNBUFFERED": "1",
        }  # as torchrun starts its ranks
        try:
            require_loopback()
            with open_log(self._channel / "torchrun.log") as log:
                self._process = ManagedProcess(
                    self._command, env=environment, stdout=log, stderr=log
                )
        except TorchscaleError:
            remove_tree(self._channel)
            raise

    @property
    def is_fresh(self) -> bool:
        """Whether the group has not run any launch yet."""
        return self._launches == 0

    def run(
        self,
        task: LaunchTask,
        directory: Path,
        *,
        limits: LaunchLimits,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> LaunchRecord:
        """Run ``task`` with its files in ``directory``. Returns the record; unless it is ``ok``,
        the group is closed."""
        grouped = not self.is_fresh
        started = time.monotonic()
        kills = OomKills()
        atomic_write_model(directory / "task.json", task, durable=False)
        item = GroupItem(task=task, directory=str(directory.resolve()), cpu_sets=self._cpu_sets)
        atomic_write_model(self._channel / f"item-{self._launches}.json", item, durable=False)
        self._launches, self._last = self._launches + 1, directory
        records = [directory / f"rank-{rank}.json" for rank in range(task.cell.world_size)]

        def is_done() -> bool:
            return all(path.exists() for path in records)

        self._sampler.read(task.telemetry_seconds, task.gpu_uuids)
        watch = Watch(
            directory,
            limits,
            stop,
            on_progress,
            world_size=task.cell.world_size,
            log_directory=self._channel,
        )
        kind, detail = watch.wait(self._process, is_done)
        if task.telemetry_seconds is not None:
            self._sampler.copy_new(task.started_at, directory)
        survivors: tuple[str, ...] = ()
        if not is_done():
            survivors = stop.end(self._process)
            directory.mkdir(
                parents=True, exist_ok=True
            )  # user code can remove it, as long as it runs
            self._keep_logs(directory)
        else:
            self._copy_new_output(directory)
        if is_done():
            kind = EndingKind.FINISHED
        ending = LaunchEnding(kind, self._process.poll(), detail, survivors)
        record = collect_launch(
            task,
            directory,
            ending,
            command=tuple(self._command),
            started_at=datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(
                timespec="seconds"
            ),
            seconds=time.monotonic() - started,
            oom_kills=kills.since_start(),
            process_logs=self._process_logs(),
        )
        if record.state is not State.OK:
            self.close()
        return record.model_copy(update={"grouped": grouped})

    def close(self) -> None:
        """Ask the ranks to leave, and end them if they do not. Their output is kept with the last
        launch."""
        if self._channel.exists():
            self._sampler.close()
            if self._process.poll() is None:
                with contextlib.suppress(OutputError):  # on a full disk they are killed
                    atomic_write_text(self._channel / "end", "", durable=False)
                    wait_until(self._is_over, timeout_seconds=_END_SECONDS)
            # The ranks have gone: torchrun has nothing left to do, and would take half a second to
            # notice.
            self._process.end(grace_seconds=0.0)
            if self._last is not None and self._last.exists():
                self._keep_logs(self._last)
            remove_tree(self._channel)

    def _is_over(self) -> bool:
        """Whether every rank has left, or torchrun itself."""
        try:
            children = psutil.Process(self._process.pid).children()
        except psutil.Error:
            return True
        return self._process.poll() is not None or not any(map(is_running, children))

    def _copy_new_output(self, directory: Path) -> None:
        """What the ranks printed since the last launch, as the logs of this one: NCCL's choices are
        read from them."""
        for log in self._process_logs():
            copied = self._copied.get(log, 0)
            if log.stat().st_size > copied:
                self._copied[log] = keep_log(
                    log, directory / f"rank-{log.parent.name}.{log.name}", start=copied
                )

    def _process_logs(self) -> list[Path]:
        return sorted(self._channel.glob("logs/*/attempt_*/*/*.log"))

    def _keep_logs(self, directory: Path) -> None:
        flatten_logs(self._channel)
        for path in self._channel.glob("*.log"):
            shutil.move(path, directory / path.name)
