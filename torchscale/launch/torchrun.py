"""A torchrun of one cell, watched to its end."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.environment import common_environment, nccl_log_environment
from torchscale.launch.hangs import inspect_hang
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.kinds import launch_kind
from torchscale.launch.loopback import LOCAL_RENDEZVOUS, require_loopback
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.interpreter import module_command
from torchscale.util.logs import LogLimit, clean_logs, open_log
from torchscale.util.optional import optional
from torchscale.util.processes.subprocesses import POLL_SECONDS, ManagedProcess

_SLOW_SECONDS, _SLOW_STEPS = 10.0, 3.0
"""A launch that runs out of its time is taken for slow and not for hanging if it made progress
within ten seconds, which is twenty times the interval of its progress lines, or within three times
the longest interval seen."""
_FINISHING_POLL_SECONDS = 0.01
"""The ranks have measured and write their records: a short interval slows nothing."""


@dataclass(frozen=True)
class NodePlace:
    """A node's place in a launch over several nodes.

    Attributes:
        nodes: Number of nodes of the launch.
        node_rank: Rank of this node, from 0; ranks are numbered in this order.
        master_address, master_port: Address and port of torchrun's store, on node 0 of the launch.
        local_address: Address of this node, in the network of the nodes.
        interface: The interface that has this address; empty where it is not known.
    """

    nodes: int
    node_rank: int
    master_address: str
    master_port: int
    local_address: str
    interface: str

    @property
    def options(self) -> tuple[str, ...]:
        """torchrun's: a static rendezvous, so that a rank is always at the same place."""
        return (
            "--rdzv-backend=static",
            f"--nnodes={self.nodes}",
            f"--node-rank={self.node_rank}",
            f"--master-addr={self.master_address}",
            f"--master-port={self.master_port}",
            f"--local-addr={self.local_address}",
        )

    @property
    def environment(self) -> dict[str, str]:
        """gloo would otherwise resolve the host name, and NCCL take any interface for its first
        contact."""
        if not self.interface:
            return {}
        return {"GLOO_SOCKET_IFNAME": self.interface, "NCCL_SOCKET_IFNAME": f"={self.interface}"}


def torchrun_command(
    local_size: int, directory: Path, *arguments: str, place: NodePlace | None = None
) -> list[str]:
    """argv of a torchrun of the worker with these arguments, its logs in ``directory``, without
    restarts. Single node unless there is a ``place``; ``local_size`` ranks run on this node."""
    return module_command(
        "torch.distributed.run",
        *(LOCAL_RENDEZVOUS if place is None else place.options),
        f"--nproc-per-node={local_size}",
        "--max-restarts=0",
        f"--log-dir={directory / 'logs'}",
        "--redirects=3",
        "-m",
        "torchscale.worker",
        *arguments,
    )


def start_torchrun(
    command: list[str], environment: Mapping[str, str], log: IO[bytes]
) -> ManagedProcess:
    """Start a torchrun (which nsys may wrap) with its output in ``log``.

    Raises:
        MachineError: the program cannot be started, or its ranks could not reach each other.
    """
    if LOCAL_RENDEZVOUS[1] in command:
        require_loopback()
    return ManagedProcess(command, env=environment, stdout=log, stderr=log)


def worker_environment(
    task: LaunchTask, extra: Mapping[str, str], place: NodePlace | None = None
) -> dict[str, str]:
    """Environment of the ranks: this process's variables, thread counts, no network for model hubs,
    NCCL's log, those of the cell, then ``extra`` (the user's)."""
    network = None if place is None else place.environment
    common = common_environment(task.threads_per_rank, network)
    if task.device == "cuda":
        common |= nccl_log_environment({**common, **extra})
    return {**common, **cell_environment(task.cell), **extra}


def cell_environment(cell: AnyCell) -> Mapping[str, str]:
    """Environment variables that a cell needs because of its kind (NCCL's, for collectives); empty
    for most."""
    return launch_kind(cell.kind).environment(cell)


class WatchedProcess(Protocol):
    """What runs: a torchrun, or the parts of a launch on other machines, which have no ``pid``
    here."""

    @property
    def pid(self) -> int | None:
        """Of the process on this machine."""

    def poll(self) -> int | None:
        """The exit code; ``None`` while it runs."""


@dataclass(frozen=True)
class Watch:
    """Waits until a torchrun ends, the user stops it, or a limit is reached.

    ``finishing_seconds`` bounds the time without progress once the ranks are finishing, where that
    is not
    ``limits.stall_seconds``. ``world_size``: ranks of the launch, where the torchrun may have more
    processes.
    ``log_directory``: where torchrun's logs are, if not in ``directory``. ``inspect_others`` is
    called when ranks make no progress, and returns a function that waits until those elsewhere were
    asked where they are. ``inspect`` asks the ranks of this machine where they are, if they are not
    ours: it is given the process, and seconds since the last progress where they may move.
    ``pause`` waits between two looks, at most the seconds that it is given.
    """

    directory: Path
    limits: LaunchLimits
    stop: StopRequest
    on_progress: Callable[[Progress], None]
    finishing_seconds: float | None = None
    world_size: int | None = None
    log_directory: Path | None = None
    inspect_others: Callable[[], Callable[[], object]] | None = None
    inspect: Callable[[int, float | None], None] | None = None
    pause: Callable[[float], object] = time.sleep

    def run(
        self,
        command: list[str],
        environment: Mapping[str, str],
        is_done: Callable[[], bool] = lambda: False,
    ) -> LaunchEnding:
        """Start ``command`` and wait until it has ended or ``is_done``. No process is left running,
        but for those named as survivors."""
        with open_log(self.directory / "torchrun.log") as log:
            try:
                process = start_torchrun(command, environment, log)
            except MachineError as error:
                return LaunchEnding(EndingKind.NOT_STARTED, None, error.message)
            survivors: tuple[str, ...] = ()
            try:
                kind, detail = self.wait(process, is_done)
            finally:
                survivors = self.stop.end(process)
        return LaunchEnding(kind, process.poll(), detail, survivors)

    def wait(
        self, process: WatchedProcess, is_done: Callable[[], bool] = lambda: False
    ) -> tuple[EndingKind, str]:
        """Wait until the process has ended, ``is_done`` is true, a limit is reached or the user
        stops. Does not end it."""
        started = last_progress = time.monotonic()
        longest_step = 0.0
        reader = ProgressReader(self.directory / "progress.jsonl")
        phase = "starting"
        logs = log_limit(self.log_directory or self.directory)
        while process.poll() is None and not is_done():
            logs.apply()
            for progress in reader.read():
                longest_step = max(longest_step, time.monotonic() - last_progress)
                last_progress, phase = time.monotonic(), progress.phase
                self.on_progress(progress)
            now = time.monotonic()
            if self.stop.asked:
                return EndingKind.INTERRUPTED, f"interrupted while {phase}"
            if now - started > self.limits.hard_seconds:
                silent = now - last_progress
                may_move = silent < max(_SLOW_SECONDS, _SLOW_STEPS * longest_step)
                self._inspect(process, silent if may_move else None)
                return (
                    EndingKind.TIMEOUT,
                    f"not finished after {self.limits.hard_seconds:g} s (while {phase})",
                )
            patience = self.limits.stall_seconds
            if phase == "finishing" and self.finishing_seconds is not None:
                patience = max(patience, self.finishing_seconds)
            if now - last_progress > patience:
                self._inspect(process)
                return EndingKind.TIMEOUT, f"no progress for {patience:g} s while {phase}"
            self.pause(_FINISHING_POLL_SECONDS if phase == "finishing" else POLL_SECONDS)
        for progress in reader.read():  # what was written since the last look
            self.on_progress(progress)
        return EndingKind.FINISHED, ""

    def _inspect(self, process: WatchedProcess, moved_seconds_ago: float | None = None) -> None:
        wait_for_others = None
        if self.inspect_others is not None:
            wait_for_others = self.inspect_others()
        if process.pid is None:
            pass  # its ranks are elsewhere
        elif self.inspect is not None:
            self.inspect(process.pid, moved_seconds_ago)
        else:
            ranks = optional(range, self.world_size)
            inspect_hang(self.directory, process.pid, ranks, moved_seconds_ago)
        if wait_for_others is not None:
            wait_for_others()


class ProgressReader:
    """Reads the lines that were appended to the progress file since the last call."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[Progress]:
        """The lines that are whole."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]  # a line may be half written
        self._offset += len(whole)
        lines = []
        for line in whole.splitlines():
            with contextlib.suppress(ValidationError):
                lines.append(Progress.model_validate_json(line))
        return lines


def log_limit(directory: Path) -> LogLimit:
    """The bound on what the ranks of a torchrun, whose logs are in ``directory``, print while they
    run."""
    return LogLimit("*.log", "logs/*/attempt_*/*/*.log", directory=directory)


def flatten_logs(directory: Path, first_rank: int = 0) -> None:
    """torchrun's ``logs/<run>/attempt_0/<local rank>/stderr.log`` becomes
    ``rank-<rank>.stderr.log``, bounded and without secrets, as every log here; empty logs are
    removed. ``first_rank``: of this node."""
    for log in sorted((directory / "logs").glob("*/attempt_*/*/*.log")):
        if log.stat().st_size:
            log.replace(directory / f"rank-{first_rank + int(log.parent.name)}.{log.name}")
    clean_logs(directory)
    shutil.rmtree(directory / "logs", ignore_errors=True)
