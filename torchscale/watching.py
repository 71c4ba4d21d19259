"""The line in a user's own program that has it watched, where no command starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def watch(directory: str | os.PathLike[str] | None = None, *, timing: bool = False) -> Path:
    """Watch this process from now on, as ``torchscale watch -- PROGRAM`` does for a whole program.

    Call it in every rank before ``init_process_group``. The first rank of a machine starts a
    process that follows the job and ends with it. ``torchscale watch DIR`` shows what is known.

    Args:
        directory: For what is collected, the same on all ranks; by default
            ``results/watch-<script>-<pid of the launcher>``.
        timing: On GPUs, whether torch is to time each collective, so that the rank which the others
            wait for is known.

    Returns:
        The directory.
    """
    if os.environ.get("TORCHSCALE_WATCH"):  # the program runs under the command
        return Path(os.environ["TORCHSCALE_WATCH"])
    name = Path(sys.argv[0]).stem or "python"
    folder = Path(directory or Path("results") / f"watch-{name}-{os.getppid()}").absolute()
    from torchscale.util.interpreter import module_command  # noqa: PLC0415 - the root is imported alone
    from torchscale.worker.watch.collector import install  # noqa: PLC0415 - it imports torch
    from torchscale.worker.watch.ring_settings import TIMING_VARIABLE  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    if timing:
        os.environ[TIMING_VARIABLE] = "1"
    install(str(folder))
    if os.environ.get("LOCAL_RANK", "0") == "0":
        subprocess.Popen(
            module_command("torchscale", "watch", "--follow", str(os.getpid()), str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return folder
