"""The line in a user's own program that has it watched, where no command starts it."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchscale.util.ray_worker import RayRun


def watch(
    directory: str | os.PathLike[str] | None = None,
    *,
    timing: bool = False,
    role: str | None = None,
) -> Path:
    """Watch this process from now on, as ``torchscale watch -- PROGRAM`` does for a whole program.

    Call it in every rank before ``init_process_group``; in a train function of Ray Train, whose
    workers have their group by then, as its first line. The first rank of a machine starts a
    process that follows the job and ends with it. ``torchscale watch DIR`` shows what is known.

    Args:
        directory: For what is collected, the same on all ranks; by default
            ``results/watch-<script>-<pid of the launcher>``, with Ray Train ``watch`` in the run's
            folder on its storage, from which a relative path is taken as well.
        timing: On GPUs, whether torch is to time each collective, so that the rank which the others
            wait for is known.
        role: What this program does in a job of several (``trainer``, ``rollout``), which share
            ``directory``; by default ``TORCHSCALE_WATCH_ROLE``, else none.

    Returns:
        The directory; with a role that of the role.

    Raises:
        UsageError: the role is no name.
    """
    if os.environ.get("TORCHSCALE_WATCH"):  # the program runs under the command
        return Path(os.environ["TORCHSCALE_WATCH"])
    from torchscale.util.ray_worker import ray_run  # noqa: PLC0415 - the root is imported alone
    from torchscale.util.roles import chosen_role, role_folder  # noqa: PLC0415
    from torchscale.worker.watch.collector import install  # noqa: PLC0415 - it imports torch
    from torchscale.worker.watch.ends import watch_end  # noqa: PLC0415
    from torchscale.worker.watch.guard import tell_in  # noqa: PLC0415
    from torchscale.worker.watch.ring_settings import TIMING_VARIABLE  # noqa: PLC0415

    run = ray_run()
    chosen = chosen_role(role)
    folder = role_folder(_default(directory) if run is None else _in_run(run, directory), chosen)
    folder.mkdir(parents=True, exist_ok=True)
    if timing:
        os.environ[TIMING_VARIABLE] = "1"
    tell_in(str(folder))
    watch_end(str(folder))
    install(str(folder), in_ray=run is not None)
    if _is_first(run, folder):
        _start_follower(folder, run, chosen)
    return folder


def _default(directory: str | os.PathLike[str] | None) -> Path:
    name = Path(sys.argv[0]).stem or "python"
    return Path(directory or Path("results") / f"watch-{name}-{os.getppid()}").absolute()


def _in_run(run: RayRun, directory: str | os.PathLike[str] | None) -> Path:
    """Where workers of Ray Train collect: their working directory is Ray's own, on each node
    another."""
    named = Path(directory or "watch")
    base = run.folder
    if base is None and not named.is_absolute():
        base = Path.home() / "ray_results" / run.name
        if run.local_rank == 0:
            warnings.warn(
                f"torchscale: the run is stored at {run.storage}, which is no folder; what is "
                f"collected goes to {base / named} on each node",
                stacklevel=3,
            )
    return named if base is None else base / named


def _is_first(run: RayRun | None, folder: Path) -> bool:
    """Whether this rank starts the process that follows: one for each folder."""
    if run is None:
        return os.environ.get("LOCAL_RANK", "0") == "0"
    if run.folder is not None and run.folder in folder.parents:
        return run.rank == 0
    return run.local_rank == 0


def _start_follower(folder: Path, run: RayRun | None, role: str) -> None:
    from torchscale.util.detached import start_detached  # noqa: PLC0415 - as above
    from torchscale.util.interpreter import module_command  # noqa: PLC0415

    options = ["--follow", str(os.getpid())]
    if role:
        options += ["--role", role]
    if run is not None:
        options += ["--follow-name", run.name]
    start_detached(module_command("torchscale", "watch", *options, str(folder)))
