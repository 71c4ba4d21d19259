"""Launches that measure the peak rates of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.schema.cells.hardware import HardwareCell, HardwareRank, HardwareResult


def environment(cell: HardwareCell) -> Mapping[str, str]:
    """Empty: these ranks need no variables of their own."""
    return {}


def collect_payload(directory: Path, ranks: Sequence[HardwareRank]) -> HardwareResult:
    """The ranks' records, as they are."""
    return HardwareResult(ranks=tuple(ranks))


def measured_window(payload: HardwareResult) -> None:
    """``None``: no telemetry is read."""


def invalid_reason(payload: HardwareResult) -> str:
    """Rates have no result that could be wrong."""
    return ""


def clean_up(cell: HardwareCell, directory: Path) -> None:
    """Nothing: these ranks write into the launch's directory alone."""
