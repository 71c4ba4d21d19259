"""Launches that measure the memory of a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.schema.cells.memory import MemoryCell, MemoryRank, MemoryResult


def environment(cell: MemoryCell) -> Mapping[str, str]:
    """Empty: these ranks need no variables of their own."""
    return {}


def collect_payload(directory: Path, ranks: Sequence[MemoryRank]) -> MemoryResult:
    """The ranks' records, as they are."""
    return MemoryResult(ranks=tuple(ranks))


def measured_window(payload: MemoryResult) -> None:
    """``None``: no telemetry is read."""


def invalid_reason(payload: MemoryResult) -> str:
    """Bytes have no result that could be wrong."""
    return ""


def clean_up(cell: MemoryCell, directory: Path) -> None:
    """Nothing: these ranks write into the launch's directory alone."""
