"""``python -m torchscale.worker.launcher.elastic_launcher DIRECTORY``: runs the launches that appear
in a directory, one after the other, each under torchrun's agent in a fork of this process. Its
standard input is its end of a :class:`~torchscale.util.processes.doorbell.Doorbell`.

torch and the libraries of a launch are imported here, once. Where every rank imports them, after
torchrun has imported torch too, a short sweep on few cores waits longer for imports than it
measures. For launches on CPUs: CUDA cannot be used in a fork of a process that has initialized it.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from time import time as wall_clock

from torchscale.schema.launch.task import GroupItem, ended_file
from torchscale.util.files import atomic_write_text
from torchscale.util.gc import gc_paused
from torchscale.util.processes.doorbell import Doorbell
from torchscale.util.processes.exit import end_with_parent, exit_at_once
from torchscale.util.processes.names import AGENT_NAME
from torchscale.worker.launcher.rank_process import group_launches, name_process, status_of

_FIRST_LAUNCH_SECONDS = 600.0
"""Longest wait for the first launch. The plan of a sweep takes seconds, also where the models of a
user are imported for it."""


def main() -> None:
    """Run launches until the group ends, and tell the exit status of each one's agent in a file."""
    started = perf_counter()
    channel, bell = Path(sys.argv[1]), _doorbell()
    with gc_paused():  # before the first launch is there: torchscale prepares it meanwhile
        from torchscale.worker.launcher import elastic_agent  # noqa: F401, PLC0415 - takes seconds
    has_launch = bell.wait(0.0)
    if not has_launch:
        _import_ahead()
    import_seconds = perf_counter() - started
    if not has_launch:  # until it rings, the directory may be that of an earlier launcher
        bell.wait(_FIRST_LAUNCH_SECONDS)
    for number, item in enumerate(group_launches(channel, bell.wait)):
        begun = perf_counter()
        if number == 0:
            begun -= min(import_seconds, _seconds_since(item.task.started_at))
        _import_libraries(item)
        launcher, agent = os.getpid(), os.fork()
        if agent == 0:
            end_with_parent(launcher)
            bell.close()
            exit_at_once(status_of(partial(_run_agent, item, begun)))
        _, ending = os.waitpid(agent, 0)
        code = os.waitstatus_to_exitcode(ending)
        atomic_write_text(channel / ended_file(number), str(code), durable=False)
        bell.ring()


def _seconds_since(moment: float) -> float:
    """Seconds since a moment of the wall clock. What was imported before the launch was asked for is
    no part of it: its wall time does not hold that either."""
    return max(0.0, wall_clock() - moment)


def _doorbell() -> Doorbell:
    """What is at the standard input, which reads nothing afterwards: agents and ranks inherit it."""
    bell = Doorbell(socket.socket(fileno=os.dup(0)))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return bell


def _import_ahead() -> None:
    """Import what all training needs, as most launches do."""
    with gc_paused():
        from torchscale.worker.rank import import_for_training  # noqa: PLC0415 - takes seconds

        import_for_training()
    gc.collect()


def _import_libraries(item: GroupItem) -> None:
    """Import what the launch needs, but for a user's module, which its ranks import. The garbage
    collector goes once over what was imported, here: else each rank would, in one of its steps."""
    before = len(sys.modules)
    with gc_paused():
        from torchscale.worker.rank import import_known_libraries  # noqa: PLC0415 - takes seconds

        import_known_libraries(item.task.cell)
    if len(sys.modules) > before:
        gc.collect()


def _run_agent(item: GroupItem, begun: float) -> int:
    """Be the torchrun of a launch: with its output in the launch's log and its environment. Returns
    the exit status."""
    from torchscale.worker.launcher.elastic_agent import run_agent  # noqa: PLC0415 - imported already

    name_process(AGENT_NAME)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # asks ranks where they are
    log = os.open(
        Path(item.directory) / "torchrun.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
    )
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.environ.update(item.environment)
    return run_agent(item, begun)


if __name__ == "__main__":
    main()
