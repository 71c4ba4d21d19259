"""Processes that outlive the one that starts them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from torchscale.util.interpreter import code_command

_START = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
_SECONDS = 30.0
"""For a Python without its site, which takes 20 ms, on a machine that is very busy."""


def start_detached(command: Sequence[str]) -> None:
    """Start a process that is no child of this one, in a session of its own and without its streams:
    what ends this process with all its children, as Ray does with a worker, does not end that.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was not after 30 s.
    """
    subprocess.run(
        code_command(_START, *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
        timeout=_SECONDS,
    )
