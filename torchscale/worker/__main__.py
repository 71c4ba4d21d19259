"""``python -m torchscale.worker TASK.json`` runs one launch in one rank, started by torchrun. With ``--group
DIRECTORY`` the rank runs the launches that appear in that directory, one after the other."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, perf_counter, sleep

from torchscale.schema.launch.task import GroupItem, LaunchTask
from torchscale.util.process_exit import exit_at_once
from torchscale.worker.heap import keep_freed_memory

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.01
"""Between two looks for the next launch: short against a launch, long enough to take no measurable share of a core."""
_HANDOVER_SECONDS = 600.0
"""Ranks of a group that get no launch for this long leave. The launcher needs seconds between two launches; ten minutes
mean that it has gone."""


def main() -> None:
    """Run one rank to its end; leaves by ``os._exit``, without Python's teardown."""
    started = perf_counter()
    _die_with_parent()
    _volunteer_for_oom_killer()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the launcher asks a hanging rank where it is
    launches = _launches(sys.argv[1:])
    first = next(launches)
    _limit_to_share(first)
    if first.task.malloc == "keep":
        keep_freed_memory()
    if first.task.cell.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once
    from torchscale.worker.rank import run_rank  # noqa: PLC0415 - imports torch, whose pools take the limits above

    status, rank = 0, int(os.environ["RANK"])
    for number, item in enumerate(itertools.chain([first], launches)):
        world_size = item.task.cell.world_size
        if rank >= world_size:
            continue  # others run it
        os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(world_size)
        name = f"launch-{number}" if len(sys.argv) > 2 else ""
        status = run_rank(item.task, Path(item.directory), started, name)
        if status:
            break
        started = perf_counter()
    # With a process group behind it, the interpreter's teardown can abort after the work is done (seen with DDP on
    # gloo in one of four launches): the record is written, so leave at once.
    exit_at_once(status)


def _launches(arguments: list[str]) -> Iterator[GroupItem]:
    """The one launch of ``TASK.json``, or those that are handed over in the directory of ``--group``, until its end."""
    if arguments[0] != "--group":
        path = Path(arguments[0])
        task = LaunchTask.model_validate_json(path.read_bytes())
        yield GroupItem(task=task, directory=str(path.parent), cpu_sets=task.cpu_sets)
        return
    channel = Path(arguments[1])
    record_of_last = channel
    for number in itertools.count():
        path = channel / f"item-{number}.json"
        deadline = monotonic() + _HANDOVER_SECONDS
        while not path.exists():
            if (channel / "end").exists() or monotonic() > deadline:
                return
            if not record_of_last.exists():  # other ranks are still at it; the launcher bounds how long
                deadline = monotonic() + _HANDOVER_SECONDS
            sleep(_POLL_SECONDS)
        item = GroupItem.model_validate_json(path.read_bytes())
        record_of_last = Path(item.directory) / "rank-0.json"
        yield item


def _die_with_parent() -> None:
    """Ask the kernel to end this rank when torchrun dies, and end now if it is dead already."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    launcher = os.environ.get("TORCHSCALE_LAUNCHER_PID", "")
    if launcher.isdigit():
        orphaned = os.getppid() == int(launcher)  # torchrun died and the launcher adopted us
        if orphaned or not Path(f"/proc/{launcher}").exists():
            os._exit(1)


def _volunteer_for_oom_killer() -> None:
    """Make the kernel's out-of-memory killer prefer this rank to the user's shell and to the launcher."""
    with contextlib.suppress(OSError):  # not Linux, or not permitted: then the kernel chooses by size, as always
        Path("/proc/self/oom_score_adj").write_text("1000")  # the highest score there is


def _limit_to_share(item: GroupItem) -> None:
    """Pin this rank to its cores, so that a CPU device is the same share of the machine at every world size."""
    if item.cpu_sets is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, item.cpu_sets[int(os.environ["LOCAL_RANK"])])


if __name__ == "__main__":
    main()
