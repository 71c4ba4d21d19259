"""Runs scripts on ranks that are forks of this process, which imports torch once for all of them.

Reads a job a line, as JSON (:class:`tests.worker.forks.Job`), and prints the exit code of each: 0
where every rank has left with 0. Each job has an agent of its own, which holds the store as
torchrun's does and ends the other ranks when one fails.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.launcher.fork_gate import ForkGate
from torchscale.worker.parallel import mesh, zero  # noqa: F401 - imports most of torch.distributed
from torchscale.worker.rank import import_known_libraries

_STORE_SECONDS = 30


def main() -> None:
    """Run jobs until there is no further line."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        for task in job["tasks"]:
            import_known_libraries(LaunchTask.model_validate(task).cell)
        gc.collect()
        gc.freeze()  # what was imported need not be looked through in ranks
        agent = os.fork()
        if agent == 0:
            os._exit(_exit_code(_run_agent, job))
        _, status = os.waitpid(agent, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run_agent(job: dict[str, Any]) -> int:
    """Fork the ranks and wait for them. Returns the exit code of the first that failed."""
    directory, ranks = Path(job["directory"]), int(job["ranks"])
    with (directory / "output.log").open("ab") as log, Path(os.devnull).open() as nothing:
        for source, descriptor in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source.fileno(), descriptor)
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    sys.argv = [job["script"], *job["arguments"]]
    store = TCPStore(
        "127.0.0.1",
        0,
        is_master=True,
        timeout=timedelta(seconds=_STORE_SECONDS),
        wait_for_workers=False,
        multi_tenant=True,
    )
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(store.port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
        WORLD_SIZE=str(ranks),
        LOCAL_WORLD_SIZE=str(ranks),
    )
    running, gate = set(), ForkGate()
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            gate.wait()
            os._exit(_exit_code(_run_rank, {"rank": rank, "script": job["script"]}))
        running.add(pid)
    gate.open()
    failed = 0
    while running:
        pid, status = os.wait()
        running.discard(pid)
        failed = failed or os.waitstatus_to_exitcode(status)
        if failed:
            for other in running:
                os.kill(other, signal.SIGKILL)
    return failed


def _run_rank(rank: dict[str, Any]) -> int:
    os.environ.update(RANK=str(rank["rank"]), LOCAL_RANK=str(rank["rank"]))
    code = compile(Path(rank["script"]).read_text(encoding="utf-8"), rank["script"], "exec")
    exec(code, {"__name__": "__main__"})  # noqa: S102 - a script of these tests
    return 0


def _exit_code(function: Any, argument: dict[str, Any]) -> int:
    """What ``function`` returns; 1 with a traceback where it raises."""
    try:
        code: int = function(argument)
    except BaseException:  # noqa: BLE001 - this process must not go on as its parent would
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return abs(code)


if __name__ == "__main__":
    main()
