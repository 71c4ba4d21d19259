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
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import NoReturn

from torchscale.schema.launch.task import COPY_NAME, GroupItem, LaunchTask
from torchscale.util.gc import gc_paused
from torchscale.util.process_exit import end_with_parent, exit_at_once, flush_output
from torchscale.worker.heap import keep_freed_memory

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None)
_POLL_SECONDS = 0.01
"""Between two looks for the next launch: short against a launch, long enough to take no measurable share of a core."""
_HANDOVER_SECONDS = 600.0
"""Ranks of a group that get no launch for this long leave. The launcher needs seconds between two launches; ten minutes
mean that it has gone."""


def run_rank_process(arguments: Sequence[str], started: float) -> int:
    """Run one rank to its end. Returns the exit status; the caller leaves without Python's teardown.

    Args:
        arguments: The file of a task, or ``--group`` and the directory in which launches appear.
        started: ``time.perf_counter()`` at the start of the process.
    """
    _die_with_parent()
    _volunteer_for_oom_killer()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the launcher asks a hanging rank where it is
    is_group = arguments[0] == "--group"
    launches = group_launches(Path(arguments[1])) if is_group else _one_launch(Path(arguments[0]))
    first = next(launches)
    _limit_to_share(first)
    if first.task.malloc == "keep":
        keep_freed_memory()
    if first.task.cell.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once
    _import_ahead(first)  # torch's pools take the limits above
    from torchscale.worker.rank import import_libraries, run_rank  # noqa: PLC0415

    status, rank = 0, int(os.environ["RANK"])
    forks = is_group and first.task.device == "cpu" and sys.platform == "linux"
    for number, item in enumerate(itertools.chain([first], launches)):
        started = perf_counter() if number else started
        world_size = item.task.cell.world_size
        if is_group:  # of one node; else torchrun has set both
            os.environ["WORLD_SIZE"] = os.environ["LOCAL_WORLD_SIZE"] = str(world_size)
        name = f"launch-{number}" if is_group else ""
        if forks:
            forks = import_libraries(item.task.cell)  # also where others run it: the next launch may need this rank
        if rank >= world_size:
            continue
        if forks:
            run_in_copy(partial(run_rank, item.task, Path(item.directory), started, name, is_last=True))
            recorded = item.task.recording is not None  # a recording leaves no record
            if not (recorded or (Path(item.directory) / f"rank-{rank}.json").exists()):
                break  # the model has left with 0, which torchrun must see
        else:
            status = run_rank(item.task, Path(item.directory), started, name, is_last=not is_group)
        if status:
            break
    return status


def _import_ahead(first: GroupItem) -> None:
    """Import torch and what the first launch needs; nothing in a fork of a process that has. The garbage collector
    would go seven times over up to 600,000 objects, which all stay: it does so once, before any step."""
    if "torch" in sys.modules:
        return
    with gc_paused():
        from torchscale.worker.rank import import_known_libraries  # noqa: PLC0415 - takes seconds

        import_known_libraries(first.task.cell)
    gc.collect()


def run_in_copy(run: Callable[[], int]) -> None:
    """Run a launch in a copy of this process (a fork), which has imported torch and the model's libraries and nothing
    else: it starts in milliseconds, and its heap, its pools and its garbage are those of a process of its own.

    Not with CUDA, which a copied process cannot use once it has been initialized. Returns if the copy exits with 0;
    else this process ends as the copy did, so that torchrun sees the same exit code or signal.
    """
    parent = os.getpid()
    flush_output()  # or the copy would write it once more
    faulthandler.unregister(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the copy alone tells where the rank is
    copy = os.fork()
    if copy == 0:
        end_with_parent(parent)
        name_process(COPY_NAME)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        exit_with_status_of(run)
    _, ending = os.waitpid(copy, 0)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    code = os.waitstatus_to_exitcode(ending)
    if code < 0:
        faulthandler.disable()  # the copy has printed its stacks
        if -code != signal.SIGKILL:  # it has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(parent, -code)
        code = 128 - code  # a signal that ends no process
    if code:
        exit_at_once(code)


def exit_with_status_of(run: Callable[[], int]) -> NoReturn:
    """End this process, a fork, with the status that ``run`` returns. What it raises (a failure that could not be
    written to a full disk) is printed here: further up is the work of the process that was forked, and Python's
    teardown, which can abort in a fork."""
    try:
        status = run()
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        status = 1
    exit_at_once(status)


def name_process(name: str) -> None:
    """Set the name that the kernel shows for this process (Linux); 15 bytes at most."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _one_launch(path: Path) -> Iterator[GroupItem]:
    task = LaunchTask.model_validate_json(path.read_bytes())
    yield GroupItem(task=task, directory=str(path.parent), cpu_sets=task.cpu_sets)


def group_launches(channel: Path) -> Iterator[GroupItem]:
    """The launches that the launcher hands over in ``channel``, until it ends the group or has gone."""
    record_of_last = channel
    for number in itertools.count():
        path = channel / f"item-{number}.json"
        deadline = monotonic() + _HANDOVER_SECONDS
        while not path.exists():
            if not channel.exists() or (channel / "end").exists() or monotonic() > deadline:
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
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
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
