"""The run of Ray Train that this process is a worker of, as far as Ray says; Ray is never imported
here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RayRun:
    """A run, and a worker of it.

    Attributes:
        name: Of the run (``RunConfig(name=…)``, else Ray's).
        rank: Of this worker in all of them.
        local_rank: Of this worker on its node.
        folder: Of the run, on storage that all nodes see; ``None`` where that is no file system.
        storage: Where it is stored, as Ray says.
    """

    name: str
    rank: int
    local_rank: int
    folder: Path | None
    storage: str


def ray_run() -> RayRun | None:
    """The run; ``None`` where this process is no worker of Ray Train."""
    train: Any = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        name = str(context.get_experiment_name())
        rank, local_rank = int(context.get_world_rank()), int(context.get_local_rank())
        storage = context.get_storage()
        path = str(storage.experiment_fs_path)
        kind = str(storage.storage_filesystem.type_name)
    except Exception:  # noqa: BLE001 - Ray raises what it likes outside of a train function
        return None
    folder = Path(path) if kind == "local" else None
    return RayRun(name, rank, local_rank, folder, f"{kind}:{path}")
