"""Collectives, peak rates and memory as JSON for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import TypeAdapter

from torchscale.analysis.summary.machine import MachineSummary
from torchscale.config.choices import CellKind
from torchscale.schema.exports.checkpoint import CheckpointExport
from torchscale.schema.exports.machine import (
    AnyMachineExport,
    CollectivesExport,
    HardwareExport,
    MemoryExport,
)

_EXPORTS: Mapping[CellKind, type[AnyMachineExport]] = {
    "hardware": HardwareExport,
    "collectives": CollectivesExport,
    "memory": MemoryExport,
    "checkpoint": CheckpointExport,
}
"""Kind of cell → how its summary is published."""


def ceilings_json(summaries: Iterable[MachineSummary]) -> str:
    """A list with an entry for each cell."""
    entries = tuple(machine_export(summary) for summary in summaries)
    return TypeAdapter(tuple[AnyMachineExport, ...]).dump_json(entries, indent=1).decode()


def machine_export(summary: MachineSummary) -> AnyMachineExport:
    """One cell: what was asked, how it ended, its figures."""
    return _EXPORTS[summary.cell.kind].model_validate(summary)
