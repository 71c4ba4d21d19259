"""``python -m torchscale.worker.forked_ranks PROCESSES DIRECTORY``: torchrun's agent with the ranks of a group of
launches, as forks of itself.

torch and the libraries of the first launch are imported once, before the ranks start. Where every rank imports them,
after torchrun has imported torch too, a short sweep on few cores waits longer for imports than it measures. For
launches on CPUs: CUDA cannot be used in a fork of a process that has initialized it.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path
from time import perf_counter

from torchscale.catalog.models import find_model
from torchscale.schema.cells.kinds import training_workload
from torchscale.schema.launch.task import GroupItem, rank_process_name
from torchscale.util.process_exit import exit_at_once
from torchscale.worker.rank_process import group_launches, name_process, run_rank_process

_HANDLED_BY_AGENT = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals for which torchrun's agent has a handler that its forks inherit."""


def main() -> None:
    """Import, then run the ranks until the group ends.

    Raises:
        ChildFailedError: a rank failed; the launcher reads which from its message.
    """
    started = perf_counter()
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std  # noqa: PLC0415 - takes seconds
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    from torchscale.worker import rank as _  # noqa: F401, PLC0415 - while the launcher prepares the first launch

    processes, channel = int(sys.argv[1]), Path(sys.argv[2])
    first = next(group_launches(channel), None)
    if first is None:
        return
    _import_libraries(first)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # a free port
        local_addr="127.0.0.1",
        max_restarts=0,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=str(channel / "logs"), redirects=Std.ALL),
    )
    elastic_launch(config, _run_rank)(str(channel), started)


def _import_libraries(first: GroupItem) -> None:
    """What the ranks need for the first launch. Not a user's module, which may read the rank when it is imported."""
    from torchscale.worker.rank import import_libraries  # noqa: PLC0415

    training = training_workload(first.task.cell)
    if training is None or find_model(training.model) is not None:
        import_libraries(first.task.cell)


def _run_rank(channel: str, started: float) -> None:
    """A rank: what a process started by torchrun has of its own (session, signals, module path), then its launches."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _HANDLED_BY_AGENT:
        signal.signal(number, signal.SIG_DFL)
    name_process(rank_process_name(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
    sys.path.insert(0, str(Path.cwd()))  # a user's models may lie there
    status = run_rank_process(["--group", channel], started)
    if status:
        exit_at_once(status)  # the agent reads it from the process


if __name__ == "__main__":
    main()
