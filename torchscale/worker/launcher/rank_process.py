"""The process of a rank: it runs one launch, or the launches of a group one after the other."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, perf_counter, sleep

from torchscale.schema.launch.task import GroupItem, LaunchTask
from torchscale.util.gc import gc_paused
from torchscale.worker.memory.heap import keep_freed_memory

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None)
_POLL_SECONDS = 0.01
"""Seconds between two looks for the next launch: short against a launch, long enough to take no
measurable share of a core."""
_HANDOVER_SECONDS = 600.0
"""Ranks of a group that get no launch for this long leave. The launcher needs seconds between two
launches; ten minutes mean that it has gone."""


def run_rank_process(arguments: Sequence[str], started: float) -> int:
    """Run one rank to its end. Returns the exit status; the caller leaves without Python's
    teardown.

    Args:
        arguments: The file of a task, or ``--group`` and the directory in which launches appear.
        started: ``time.perf_counter()`` at the start of the process.
    """
    if arguments[0] == "--group":
        return _run_group(Path(arguments[1]), started)
    path = Path(arguments[0])
    task = LaunchTask.model_validate_json(path.read_bytes())
    return run_item(
        GroupItem(task=task, directory=str(path.parent), cpu_sets=task.cpu_sets), started
    )


def run_item(item: GroupItem, started: float) -> int:
    """Run the one launch of this process, whose size torchrun has set. Returns the exit status."""
    _prepare_process(item)
    from torchscale.worker.rank import run_rank  # noqa: PLC0415 - takes seconds

    return run_rank(item.task, Path(item.directory), started, is_last=True)


def _run_group(channel: Path, started: float) -> int:
    """Run the launches that appear in ``channel``, one after the other, until one fails. Returns
    the exit status."""
    launches = group_launches(channel)
    first = next(launches)
    _prepare_process(first)
    from torchscale.worker.rank import run_rank  # noqa: PLC0415 - takes seconds

    rank = int(os.environ["RANK"])
    for number, item in enumerate(itertools.chain([first], launches)):
        started = perf_counter() if number else started
        world_size = item.task.cell.world_size
        os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(world_size)
        if rank >= world_size:
            continue
        status = run_rank(item.task, Path(item.directory), started, f"launch-{number}")
        if status:
            return status
    return 0


def _prepare_process(first: GroupItem) -> None:
    """Set what is set once in a process, and import what its first launch needs: torch's pools take
    these limits."""
    _die_with_parent()
    _volunteer_for_oom_killer()
    faulthandler.enable()
    faulthandler.register(
        signal.SIGUSR1, all_threads=True
    )  # the launcher asks a hanging rank where it is
    _limit_to_share(first)
    if first.task.malloc == "keep":
        keep_freed_memory()
    if first.task.cell.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once
    _import_ahead(first)


def _import_ahead(first: GroupItem) -> None:
    """Import torch and what the first launch needs; nothing in a fork of a process that has. The
    garbage collector would go seven times over up to 600,000 objects, which all stay: it does so
    once, before any step."""
    if "torch" in sys.modules:
        return
    with gc_paused():
        from torchscale.worker.rank import import_known_libraries  # noqa: PLC0415 - takes seconds

        import_known_libraries(first.task.cell)
    gc.collect()


def status_of(run: Callable[[], int]) -> int:
    """The status with which a fork ends: what ``run`` returns. What it raises (a failure that could
    not be written to a full disk) is printed here: further up is the work of the process that was
    forked."""
    try:
        return run()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            return ending.code
        return int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        return 1


def name_process(name: str) -> None:
    """Set the name that the kernel shows for this process (Linux); 15 bytes at most."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def group_launches(channel: Path, pause: Callable[[float], object] = sleep) -> Iterator[GroupItem]:
    """The launches that the launcher hands over in ``channel``, until it ends the group or has
    gone. ``pause``: waits for the next one, at most so many seconds."""
    record_of_last = channel
    for number in itertools.count():
        path = channel / f"item-{number}.json"
        deadline = monotonic() + _HANDOVER_SECONDS
        while not path.exists():
            if not channel.exists() or (channel / "end").exists() or monotonic() > deadline:
                return
            if (
                not record_of_last.exists()
            ):  # other ranks are still at it; the launcher bounds how long
                deadline = monotonic() + _HANDOVER_SECONDS
            pause(_POLL_SECONDS)
        item = GroupItem.model_validate_json(path.read_bytes())
        record_of_last = Path(item.directory) / "rank-0.json"
        yield item


def _die_with_parent() -> None:
    """Ask the kernel to end this rank when torchrun dies, and end now if it is dead already."""
    if sys.platform != "linux":
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    launcher = os.environ.get("TORCHSCALE_LAUNCHER_PID", "")
    if launcher.isdigit():
        orphaned = os.getppid() == int(launcher)  # torchrun died and the launcher adopted us
        if orphaned or not Path(f"/proc/{launcher}").exists():
            os._exit(1)


def _volunteer_for_oom_killer() -> None:
    """Make the kernel's out-of-memory killer prefer this rank to the user's shell and to the
    launcher."""
    with contextlib.suppress(
        OSError
    ):  # not Linux, or not permitted: then the kernel chooses by size, as always
        Path("/proc/self/oom_score_adj").write_text("1000")  # the highest score there is


def _limit_to_share(item: GroupItem) -> None:
    """Pin this rank to its cores, so that a CPU device is the same share of the machine at every
    world size."""
    if item.cpu_sets is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, item.cpu_sets[int(os.environ["LOCAL_RANK"])])
