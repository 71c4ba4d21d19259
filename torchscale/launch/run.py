"""Runs a launch of a cell in a torchrun of its own, and collects what it left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from torchscale.launch.collect import collect_launch
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.oom import OomKills
from torchscale.launch.telemetry import sampling
from torchscale.launch.torchrun import Watch, flatten_logs, torchrun_command, worker_environment
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.files import atomic_write_model


def run_launch(
    task: LaunchTask,
    directory: Path,
    *,
    limits: LaunchLimits,
    extra_env: Mapping[str, str],
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
) -> LaunchRecord:
    """Run ``task`` in a torchrun of its own, with its files in ``directory``. Returns the record.
    Failures of the ranks do not raise: they are the record's state.

    Raises:
        OutputError: ``directory`` cannot be written.
    """
    atomic_write_model(directory / "task.json", task, durable=False)
    command = torchrun_command(task.cell.world_size, directory, str(directory / "task.json"))
    started_at = datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(timespec="seconds")
    clock = time.monotonic()
    kills = OomKills()
    with sampling(directory, task.telemetry_seconds, task.gpu_uuids):
        watch = Watch(directory, limits, stop, on_progress, world_size=task.cell.world_size)
        ending = watch.run(command, worker_environment(task, extra_env))
    flatten_logs(directory)
    seconds = time.monotonic() - clock
    return collect_launch(
        task,
        directory,
        ending,
        command=tuple(command),
        started_at=started_at,
        seconds=seconds,
        oom_kills=kills.since_start(),
    )
