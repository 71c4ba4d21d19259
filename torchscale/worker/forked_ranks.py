"""``python -m torchscale.worker.forked_ranks PROCESSES DIRECTORY``: starts the ranks of a group of launches as forks of
itself, in the place of torchrun.

torch and the libraries of the first launch are imported once, before the ranks start. Where every rank imports them,
after torchrun has imported torch too, a short sweep on few cores waits longer for imports than it measures. For
launches on CPUs: CUDA cannot be used in a fork of a process that has initialized it. Ranks find the environment that
torchrun sets, and failures are printed in torchrun's form.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, perf_counter, sleep

from torchscale.schema.launch.task import rank_process_name
from torchscale.util.gc import gc_paused
from torchscale.util.process_exit import exit_at_once
from torchscale.worker.rank_process import exit_with_status_of, group_launches, name_process, run_rank_process

_LOOPBACK = "127.0.0.1"
_POLL_SECONDS = 0.05
_FOLLOWING_SECONDS = 0.5
"""After a rank has failed, others that notice at once (a lost connection) fail by themselves, and say so."""


def main() -> None:
    """Import, run the ranks until the group ends, and leave with 1 if any failed."""
    started = perf_counter()
    processes, channel = int(sys.argv[1]), Path(sys.argv[2])
    with gc_paused():
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # noqa: PLC0415 - takes seconds

        # Before the first launch is there: the launcher prepares it meanwhile.
        from torchscale.worker.rank import import_known_libraries  # noqa: PLC0415

        first = next(group_launches(channel), None)
        if first is None:
            return
        import_known_libraries(first.task.cell)
    gc.collect()  # once, before the ranks start: else each would go over all that was imported, in one of its steps
    store = TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
    ranks = {}
    for rank in range(processes):
        process = os.fork()
        if process == 0:
            _run_rank(rank, processes, store.port, channel, started)
        ranks[process] = rank
    failures = _wait(ranks)
    for rank, (process, code) in failures.items():
        sys.stderr.write(f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {process})\n")
    exit_at_once(1 if failures else 0)


def _run_rank(rank: int, processes: int, port: int, channel: Path, started: float) -> None:
    """A rank: what a process started by torchrun has of its own (session, logs, environment, the working directory on
    the module path), then its launches. Does not return."""
    os.setsid()
    name_process(rank_process_name(rank, processes))
    for descriptor, name in ((1, "stdout.log"), (2, "stderr.log")):
        log = channel / "logs" / "group" / "attempt_0" / str(rank) / name  # where torchrun would put it
        log.parent.mkdir(parents=True, exist_ok=True)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.environ.update(_rank_environment(rank, processes, port))
    sys.path.insert(0, str(Path.cwd()))  # a user's models may lie there
    exit_with_status_of(lambda: run_rank_process(["--group", str(channel)], started))


def _rank_environment(rank: int, processes: int, port: int) -> Mapping[str, str]:
    """Variables that torchrun sets, for one node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "ROLE_WORLD_SIZE": str(processes),
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _wait(ranks: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Wait until all processes have ended; once one has failed, the others are ended.

    Args:
        ranks: Process id → rank.

    Returns:
        Rank → process id and exit code (negative for a signal) of those that failed by themselves.
    """
    running, failures, ending_at = dict(ranks), dict[int, tuple[int, int]](), float("inf")
    while running:
        for process in list(running):
            pid, ending = os.waitpid(process, os.WNOHANG)
            if pid == 0:
                continue
            rank, code = running.pop(process), os.waitstatus_to_exitcode(ending)
            if code:
                failures[rank] = process, code
        if failures and ending_at == float("inf"):
            ending_at = monotonic() + _FOLLOWING_SECONDS
        if running and monotonic() > ending_at:
            for process in running:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            return failures
        sleep(_POLL_SECONDS)
    return failures


if __name__ == "__main__":
    main()
