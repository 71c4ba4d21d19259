"""One launch: a torchrun of one cell, watched to its end, and the record of how it ended."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import psutil
from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.launch.collect import Ending, EndingKind, collect_launch
from torchscale.launch.oom import OomKills
from torchscale.launch.process import POLL_SECONDS, ManagedProcess, inherited_environment
from torchscale.launch.telemetry import sampling
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.progress import Progress
from torchscale.schema.record import LaunchRecord
from torchscale.schema.task import AnyCell, LaunchTask
from torchscale.store import atomic_write_model

_STACK_DUMP_SECONDS = 1.0
_BUDGET_GRACE_SECONDS = 10.0
"""A launch that is still running this long after its budget is ended; the worker itself aims to end within it."""
_COLLECTIVE_MARGIN_SECONDS = 120.0


@dataclass(frozen=True)
class LaunchLimits:
    """Bounds of one launch, in seconds.

    Attributes:
        timeout_seconds: From start to end.
        stall_seconds: Without any progress.
        budget_seconds: What the measurement should fit in; ``None`` for no budget.
    """

    timeout_seconds: float
    stall_seconds: float
    budget_seconds: float | None = None

    @property
    def hard_seconds(self) -> float:
        """When the launch is ended at the latest."""
        if self.budget_seconds is None:
            return self.timeout_seconds
        return min(self.timeout_seconds, self.budget_seconds + _BUDGET_GRACE_SECONDS)

    @property
    def collective_seconds(self) -> float:
        """torch's own bound on a collective: beyond ours, so that a hang is ours to name."""
        return self.hard_seconds + _COLLECTIVE_MARGIN_SECONDS


class StopRequest:
    """Whether the user wants to stop: set by the signal handlers, read by every wait."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def asked(self) -> bool:
        """Once: end this launch in order."""
        return self.count > 0

    @property
    def at_once(self) -> bool:
        """Twice: no grace."""
        return self.count > 1


def run_launch(
    task: LaunchTask,
    directory: Path,
    *,
    limits: LaunchLimits,
    extra_env: Mapping[str, str],
    stop: StopRequest,
    on_progress: Callable[[Progress], None],
) -> LaunchRecord:
    """Run ``task`` in ``directory`` (empty but for what the caller put there) and say how it ended. Does not raise
    for anything that the ranks do; the record's state tells."""
    atomic_write_model(directory / "task.json", task)
    command = torchrun_command(task.cell.world_size, directory, str(directory / "task.json"))
    started_at = datetime.fromtimestamp(task.started_at, timezone.utc).isoformat(timespec="seconds")
    clock = time.monotonic()
    kills = OomKills()
    with sampling(directory, task.telemetry_seconds, task.gpu_uuids):
        ending = Watch(directory, limits, stop, on_progress).run(command, worker_environment(task, extra_env))
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


def torchrun_command(world_size: int, directory: Path, *arguments: str) -> list[str]:
    """argv of a torchrun of the worker with these arguments, its logs in ``directory``. Single node: a free port on the
    loopback address, no restarts."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={world_size}",
        "--max-restarts=0",
        f"--log-dir={directory / 'logs'}",
        "--redirects=3",
        "-m",
        "torchscale.worker",
        *arguments,
    ]


def worker_environment(task: LaunchTask, extra: Mapping[str, str]) -> dict[str, str]:
    """Variables of the ranks: this process's, the thread share, no network for model hubs, then the user's own."""
    threads = str(task.threads_per_rank)
    environment = {
        **inherited_environment(),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if Path("/sys/class/net/lo").exists():
        # All ranks are on this machine; gloo would otherwise ask what the host name resolves to.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return {**environment, **cell_environment(task.cell), **extra}


def cell_environment(cell: AnyCell) -> dict[str, str]:
    """Variables that a cell asks for: NCCL reads its own once in a process."""
    if not isinstance(cell, CollectivesCell):
        return {}
    chosen = {"NCCL_ALGO": cell.algorithm, "NCCL_PROTO": cell.protocol}
    # Channels and transports are logged while NCCL connects; TUNING adds a line to every call.
    subsystems = "INIT,GRAPH,TUNING" if cell.logs_choices else "INIT,GRAPH"
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": subsystems,
    }


@dataclass(frozen=True)
class Watch:
    """Waits for a torchrun's end, for ours, or for a bound."""

    directory: Path
    limits: LaunchLimits
    stop: StopRequest
    on_progress: Callable[[Progress], None]

    def run(self, command: list[str], environment: Mapping[str, str]) -> Ending:
        """Start ``command`` and see it to its end; none of its processes is left afterwards."""
        with (self.directory / "torchrun.log").open("wb") as log:
            try:
                process = ManagedProcess(command, env=environment, stdout=log, stderr=log)
            except MachineError as error:
                return Ending(EndingKind.NOT_STARTED, None, error.message)
            survivors: tuple[str, ...] = ()
            try:
                kind, detail = self.wait(process)
            finally:
                survivors = process.end(grace_seconds=0.0) if self.stop.at_once else process.end()
        return Ending(kind, process.poll(), detail, survivors)

    def wait(self, process: ManagedProcess, is_done: Callable[[], bool] = lambda: False) -> tuple[EndingKind, str]:
        """Until the process has ended, ``is_done``, or a bound or the user ends the wait; the process may live on."""
        started = heard = time.monotonic()
        reader = _ProgressReader(self.directory / "progress.jsonl")
        phase = "starting"
        while process.poll() is None and not is_done():
            for progress in reader.read():
                heard, phase = time.monotonic(), progress.phase
                self.on_progress(progress)
            now = time.monotonic()
            if self.stop.asked:
                return EndingKind.INTERRUPTED, f"interrupted while {phase}"
            if now - started > self.limits.hard_seconds:
                _dump_stacks(process.pid)
                return EndingKind.TIMEOUT, f"not done after {self.limits.hard_seconds:g} s (it was {phase})"
            if now - heard > self.limits.stall_seconds:
                _dump_stacks(process.pid)
                return EndingKind.TIMEOUT, f"no progress for {self.limits.stall_seconds:g} s while {phase}"
            time.sleep(POLL_SECONDS)
        return EndingKind.FINISHED, ""


class _ProgressReader:
    """New lines of the progress file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[Progress]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]  # a line may be half written
        self._offset += len(whole)
        found = []
        for line in whole.splitlines():
            with contextlib.suppress(ValidationError):
                found.append(Progress.model_validate_json(line))
        return found


def _dump_stacks(torchrun_pid: int) -> None:
    """Ask every rank for its Python stacks (they go to its stderr log), so that a hang can be located."""
    try:
        ranks = psutil.Process(torchrun_pid).children(recursive=True)  # a profiler may stand between
    except psutil.Error:
        return
    for rank in ranks:
        with contextlib.suppress(psutil.Error):
            if "torchscale.worker" in rank.cmdline():
                rank.send_signal(signal.SIGUSR1)
    time.sleep(_STACK_DUMP_SECONDS if ranks else 0.0)


def flatten_logs(directory: Path) -> None:
    """torchrun's ``logs/<run>/attempt_0/<rank>/stderr.log`` becomes ``rank-<rank>.stderr.log``; empty ones go."""
    for log in sorted((directory / "logs").glob("*/attempt_*/*/*.log")):
        if log.stat().st_size:
            log.replace(directory / f"rank-{log.parent.name}.{log.name}")
    shutil.rmtree(directory / "logs", ignore_errors=True)
