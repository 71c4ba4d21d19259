"""Launches that save and load the state of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.schema.cells.checkpoint import CheckpointCell, CheckpointRank, CheckpointResult
from torchscale.util.checkpoint_place import checkpoint_place
from torchscale.util.files import remove_tree


def environment(cell: CheckpointCell) -> Mapping[str, str]:
    """Empty: these ranks need no variables of their own."""
    return {}


def collect_payload(directory: Path, ranks: Sequence[CheckpointRank]) -> CheckpointResult:
    """The ranks' records, as they are."""
    return CheckpointResult(ranks=tuple(ranks))


def measured_window(payload: CheckpointResult) -> None:
    """``None``: no telemetry is read."""


def invalid_reason(payload: CheckpointResult) -> str:
    """Which rank did not get back what was saved; empty where all did."""
    wrong = [
        str(rank.rank) for rank in payload.ranks if not all(load.restored for load in rank.loads)
    ]
    if wrong:
        return f"what was loaded is not what was saved, on rank {', '.join(wrong)}"
    return ""


def clean_up(cell: CheckpointCell, directory: Path) -> None:
    """Remove the checkpoints, which ranks that were killed leave."""
    remove_tree(checkpoint_place(cell.path, directory))
