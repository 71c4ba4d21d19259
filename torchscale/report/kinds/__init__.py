"""How each kind of cell is shown: one module per kind, named after it."""

from __future__ import annotations

from functools import cache
from typing import Protocol, TypeVar

from torchscale.analysis.kinds import AnySummary
from torchscale.config.choices import CellKind
from torchscale.door import Slot
from torchscale.report.figures.figure import Figure
from torchscale.report.formats.columns import ColumnValue
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.launch.record import LaunchRecord

C_contra = TypeVar("C_contra", contravariant=True)
S_contra = TypeVar("S_contra", contravariant=True)


class ReportKind(Protocol[C_contra, S_contra]):
    """What a module of this package provides for its kind of cell and summary."""

    def launch_label(self, cell: C_contra, devices: str, launch: int, repeats: int) -> str:
        """A launch in words: the cell on ``devices`` (``4 GPUs``), and which of ``repeats``
        launches, from 0."""

    def outcome(self, summary: S_contra, record: LaunchRecord | None = None) -> str:
        """The main figures in one line, of the launch in ``record`` or else of all; the state and
        its reason where there are none."""

    def csv_row(self, summary: S_contra) -> dict[str, ColumnValue]:
        """The cell's row of ``summary.csv``."""

    def figures(self, summary: S_contra) -> tuple[Figure, ...]:
        """What it measured, for other programs' formats; empty where it has no figures."""


_KINDS: Slot[ReportKind[AnyCell, AnySummary]] = Slot("kinds, report")


@cache
def report_kind(name: CellKind) -> ReportKind[AnyCell, AnySummary]:
    """The module of a kind."""
    return _KINDS[name]
