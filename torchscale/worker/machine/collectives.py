"""Measures collectives in one rank: every operation, dtype and size, its result checked before and
after timing."""

from __future__ import annotations

import itertools
import re
import subprocess
from datetime import timedelta
from typing import Any

from torchscale.catalog.backends import is_nccl
from torchscale.config.choices import Operation
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.identity import rank_identity
from torchscale.worker.machine.collective_sweep import CollectiveSweep
from torchscale.worker.measure.host import host_load_meter
from torchscale.worker.probe.gpu import driver_facts
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles

_TOPOLOGY_SECONDS = 10.0
"""`nvidia-smi` answers within a few seconds, unless the driver hangs; the measurement must not hang
with it."""
_TOPOLOGY_CHARACTERS = 8000
"""The matrix of 16 GPUs with its legend fits; a record should not grow beyond."""
_UNSUPPORTED = (
    "not support",
    "unsupported",
    "not implemented",
    "no backend type",
    "no algorithm/protocol available",
)
"""The last one is NCCL's, from 2.24 on, where NCCL_ALGO or NCCL_PROTO leaves nothing for an
operation or dtype. It is raised on every rank before anything is sent, so the communicator stays
usable (src/group.cc, groupCleanup)."""
_REDUCTIONS_AND_GATHERS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter")
_OPERATIONS_OF: dict[str, tuple[Operation, ...]] = {
    "tree": ("all_reduce",),
    "collnetdirect": _REDUCTIONS_AND_GATHERS,
    "collnetchain": ("all_reduce",),
    "nvls": _REDUCTIONS_AND_GATHERS,
    "nvlstree": ("all_reduce",),
    "pat": ("all_gather", "reduce_scatter"),
}
"""What each of NCCL's algorithms but Ring implements (src/graph/tuning.cc, ncclTopoTuneModel).
Until 2.23 NCCL takes another algorithm for the rest without a word; from 2.24 on it refuses."""
_WITH_ALGORITHM = (*_REDUCTIONS_AND_GATHERS, "broadcast", "reduce")
"""Operations that have an algorithm; the others are messages between peers."""


def measure_collectives(
    task: LaunchTask, cell: CollectivesCell, ranks: Ranks, files: RankFiles
) -> CollectivesRank:
    """Measure every operation, dtype and size of the cell. Returns the record of this rank; what a
    backend does not support, and sizes from the first one on that does not fit into memory, are
    listed in it.

    Raises:
        RuntimeError: a collective failed for another reason than missing support.
    """
    timeout = timedelta(seconds=task.collective_timeout_seconds)
    sweep = CollectiveSweep(cell, ranks, files, lambda: host_load_meter(task), timeout)
    for operation, dtype in itertools.product(cell.operations, cell.dtypes):
        if operation == "pairs":
            continue
        if refusal := _refusal(cell.algorithm if is_nccl(ranks.backend) else None, operation):
            sweep.unsupported[f"{operation} {dtype}"] = refusal
            continue
        try:
            sweep.measure(operation, dtype)
        except (RuntimeError, NotImplementedError) as error:
            if not any(sign in str(error).lower() for sign in _UNSUPPORTED):
                raise
            sweep.unsupported[f"{operation} {dtype}"] = _reason(str(error))
    sweep.close_stretch()
    pairs = tuple(sweep.pairs()) if "pairs" in cell.operations else ()
    node: dict[str, Any] = {}
    if ranks.rank == 0 and ranks.device.type == "cuda":
        node = {"driver": driver_facts(), "topology": _topology()}
    return CollectivesRank(
        **dict(rank_identity(task, ranks)),
        samples=tuple(sweep.samples),
        pairs=pairs,
        unsupported=sweep.unsupported,
        **node,
    )


def _refusal(algorithm: str | None, operation: Operation) -> str | None:
    """Why ``operation`` is not called with this NCCL_ALGO; ``None`` where NCCL has it, or is to be
    asked."""
    operations = _OPERATIONS_OF.get((algorithm or "").lower())
    if operations is None or operation not in _WITH_ALGORITHM or operation in operations:
        return None
    return f"NCCL's algorithm {algorithm} implements {', '.join(operations)}, not {operation}"


def _reason(message: str) -> str:
    """The line that says what is missing: NCCL's own stands below torch's, after ``Last
    error:``."""
    lines = [
        line for line in message.splitlines() if any(sign in line.lower() for sign in _UNSUPPORTED)
    ]
    return (lines or [message.partition("\n")[0]])[0].strip()[:200]


def _topology() -> str:
    """The topology matrix of ``nvidia-smi topo -m``; empty where the tool is missing or fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"],  # noqa: S607 - wherever the driver's installation put it
            capture_output=True,
            text=True,
            timeout=_TOPOLOGY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    if done.returncode == 0:
        return plain.strip()[:_TOPOLOGY_CHARACTERS]
    return ""
