"""Where the checkpoints of a launch lie while it runs: known to the ranks, which write there, and to
the launcher, which removes what they leave."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path


def checkpoint_place(path: str | None, launch_directory: Path) -> Path:
    """A directory for the checkpoints of this launch alone: below ``path``, or in the directory of
    the launch. Its name is the same whenever the launch is run again, so that what a killed one
    left is found."""
    if path is None:
        return launch_directory / "checkpoint"
    owner = f"{socket.gethostname()}:{launch_directory.resolve()}"
    return Path(path) / f"torchscale-checkpoint-{hashlib.sha256(owner.encode()).hexdigest()[:12]}"
