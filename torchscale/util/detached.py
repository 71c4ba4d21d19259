"""Processes that outlive the one that starts them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from torchscale.util.interpreter import code_command

_START = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
_SECONDS = 30.0
"""For a Python without its site, which takes 20 ms, on a machine that is very busy."""


def start_detached(
    command: Sequence[str],
    *,
    line: int = subprocess.DEVNULL,
    errors: IO[bytes] | int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Start a process that is no child of this one, in a session of its own and without its streams:
    what ends this process with all its children, as Ray does with a worker, does not end that.

    Args:
        command: What runs.
        line: A file descriptor that is its standard input and output.
        errors: Its standard error.
        env, cwd: Its environment and directory; by default those of this process.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was not after 30 s.
    """
    subprocess.run(
        code_command(_START, *command),
        stdin=line,
        stdout=line,
        stderr=errors,
        env=env,
        cwd=cwd,
        start_new_session=True,
        check=False,
        timeout=_SECONDS,
    )
