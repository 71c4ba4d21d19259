"""torchrun's agent for ranks of one machine that are forks of the process which runs it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing import active_children
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from torchscale.schema.launch.task import GroupItem
from torchscale.util.processes.exit import exit_at_once, flush_output
from torchscale.util.processes.names import rank_process_name
from torchscale.worker.launcher.fork_gate import ForkGate
from torchscale.worker.launcher.rank_process import name_process, run_item, status_of

_LOOPBACK = "127.0.0.1"
_STORE_SECONDS = 30
"""Time limit to reach the store in this very process, which takes milliseconds; torch's own is ten
minutes, and out of descriptors it is tried all that time."""
_MONITOR_SECONDS = 0.1
"""Longest time between two looks at the ranks, as torchrun's command has it. They take 0.3 % of a
core. The end of a rank is seen at once."""
_BETWEEN_LOOKS_SECONDS = 1e-3
"""A look itself waits; torch's agent asks for some time between two."""
_AGENT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The agent handles these, and its forks would as well."""
_FIRST = 1_000_000
"""Priority of what a process does at its end: before anything that libraries registered."""


def run_agent(item: GroupItem, begun: float) -> int:
    """Run the launch under torchrun's agent, with its logs in the launch's directory.

    Args:
        item: The launch.
        begun: ``time.perf_counter()`` at its start.

    Returns:
        0: every rank has left with 0.

    Raises:
        ChildFailedError: a rank has failed, and the others were ended.
        SignalException: a signal has ended the agent, and with it the ranks.
    """
    size = item.task.cell.world_size

    def run() -> int:
        name_process(rank_process_name(int(os.environ["RANK"]), size))
        sys.path.insert(0, str(Path.cwd()))  # a user's models may lie there
        return run_item(item, begun)

    logs = DefaultLogsSpecs(log_dir=str(Path(item.directory) / "logs"), redirects=Std.ALL)
    run_forks(run, size, logs)
    return 0


def run_forks(
    run: Callable[[], int],
    world_size: int,
    logs: DefaultLogsSpecs,
    *,
    timeout_seconds: float = math.inf,
) -> None:
    """Run a function in forks under torchrun's agent: without restarts, and with a static rendezvous
    on a free port of the loopback address. (That of a torchrun command, c10d, begins with a delay
    of up to 0.3 s, in which agents of other nodes could come.)

    Args:
        run: What each rank does; it returns the exit status. The variables of a rank are set.
        world_size: Number of ranks.
        logs: Where their output goes.
        timeout_seconds: After which the ranks are ended.

    Raises:
        ChildFailedError: a rank has failed, and the others were ended.
        TimeoutError: the ranks had not left in time, and were ended.
        SignalException: a signal has ended the agent, and with it the ranks.
    """
    deadline = monotonic() + timeout_seconds
    store = TCPStore(
        _LOOPBACK,
        0,
        is_master=True,
        timeout=timedelta(seconds=_STORE_SECONDS),
        wait_for_workers=False,
        multi_tenant=True,
    )
    run_id, gate = uuid.uuid4().hex, ForkGate()
    # On the port that the store has found: stores of one process that are multi-tenant share a
    # server.
    rendezvous = RendezvousParameters(
        "static",
        f"{_LOOPBACK}:{store.port}",
        run_id,
        min_nodes=1,
        max_nodes=1,
        rank=0,
        timeout=_STORE_SECONDS,
    )
    spec = WorkerSpec(
        role="default",  # as torchrun's
        local_world_size=world_size,
        rdzv_handler=get_rendezvous_handler(rendezvous),
        master_addr=_LOOPBACK,
        master_port=store.port,
        entrypoint=_run_forked_rank,
        args=(run, gate),
        max_restarts=0,
        monitor_interval=_BETWEEN_LOOKS_SECONDS,
        local_addr=_LOOPBACK,
    )
    agent = _Agent(spec, logs, gate, deadline)
    try:
        result = agent.run()
    finally:
        agent.remove_error_files()
    if result.is_failed():
        raise ChildFailedError("torchscale.worker", result.failures)


class _Agent(LocalElasticAgent):
    """torchrun's agent, for ranks that are functions as it is for ranks that are programs.

    Of functions it waits for what they return, also where a model has ended every rank with exit
    code 0; and it tells the first rank alone that it sees fail, which may be one that has lost
    another.
    """

    _processes: Mapping[int | None, BaseProcess] = MappingProxyType({})
    _results: tuple[Connection, ...] = ()
    _error_files: tuple[str, ...] = ()

    def __init__(
        self, spec: WorkerSpec, logs: DefaultLogsSpecs, gate: ForkGate, deadline: float
    ) -> None:
        super().__init__(spec, logs, start_method="fork")
        self._gate, self._deadline = gate, deadline

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        pids: dict[int, Any] = super()._start_workers(worker_group)
        self._gate.open()
        context = getattr(self._pcontext, "_pc", None)
        self._error_files = tuple(getattr(context, "error_files", ()))
        self._processes = {process.pid: process for process in active_children()}
        queues = getattr(self._pcontext, "_ret_vals", {}).values()
        self._results = tuple(queue._reader for queue in queues if hasattr(queue, "_reader"))
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if monotonic() > self._deadline:
            raise TimeoutError
        self._wait_for_an_end()
        result: RunResult = super()._monitor_workers(worker_group)
        codes = {worker: self._exit_code(worker) for worker in worker_group.workers}
        if result.state is WorkerState.HEALTHY and set(codes.values()) == {0}:
            left = {worker.global_rank: None for worker in codes}
            return RunResult(state=WorkerState.SUCCEEDED, return_values=left)
        if result.is_failed():
            result.failures.update(
                {
                    worker.global_rank: ProcessFailure(
                        worker.local_rank, worker.id, code, error_file=""
                    )
                    for worker, code in codes.items()
                    if code and worker.global_rank not in result.failures
                }
            )
        return result

    def _wait_for_an_end(self) -> None:
        """Wait until a rank that runs ends, at most until the next look at all of them. One whose
        function has returned ends only after its result was read."""
        running = [one.sentinel for one in self._processes.values() if one.exitcode is None]
        if running:
            wait([*running, *self._results], timeout=_MONITOR_SECONDS)
        else:
            sleep(_MONITOR_SECONDS)

    def remove_error_files(self) -> None:
        """torch leaves one in TMPDIR for each fork that failed before it was a rank, as where its
        log could not be made; what it says is in the agent's log."""
        for path in self._error_files:
            with contextlib.suppress(OSError):
                Path(path).unlink()

    def _exit_code(self, worker: Worker) -> int | None:
        """Negative for a signal; ``None`` while it runs."""
        process = self._processes.get(worker.id)
        if process is None:
            return None
        return process.exitcode


def _run_forked_rank(run: Callable[[], int], gate: ForkGate) -> None:
    """Run a rank with what a program that torchrun starts has of its own: a session and signals.
    Returns if it has succeeded; the process then ends without Python's teardown."""
    gate.wait()
    os.setsid()
    for number in _AGENT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = status_of(run)
    if status:
        exit_at_once(status)
    flush_output()
    Finalize(None, exit_at_once, args=(0,), exitpriority=_FIRST)
