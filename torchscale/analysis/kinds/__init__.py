"""How each kind of cell is summarized: one module per kind, named after it."""

from __future__ import annotations

from functools import cache
from typing import Protocol, TypeVar

from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.choices import CellKind
from torchscale.door import Slot
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.run.content import CellRun, Run

AnySummary = MachineSummary | TrainingSummary
"""What came of a cell of any kind."""

C_contra = TypeVar("C_contra", contravariant=True)
S = TypeVar("S")


class AnalysisKind(Protocol[C_contra, S]):
    """What a module of this package provides for its kind of cell and summary."""

    def summarize(
        self, cell_run: CellRun, cell: C_contra, repeats: int | None, run: Run | None
    ) -> S:
        """State, figures and facts of a cell from its launches.

        Args:
            cell_run: The cell's launches.
            cell: The cell itself.
            repeats: Launches that a complete training cell has; ``None`` takes any number.
            run: The whole run, for what a cell shares with others; ``None`` where it is not at
                hand.

        Raises:
            ArithmeticError, LookupError, ValueError: the records contradict themselves.
        """

    def without_figures(self, cell_run: CellRun, cell: C_contra, reason: str) -> S:
        """The summary of a cell whose records cannot be used: ``invalid``, with why."""

    def flag_names(self, summary: S) -> tuple[str, ...]:
        """Cautions about its figures."""


_KINDS: Slot[AnalysisKind[AnyCell, AnySummary]] = Slot("kinds, analysis")


@cache
def analysis_kind(name: CellKind) -> AnalysisKind[AnyCell, AnySummary]:
    """The module of a kind."""
    return _KINDS[name]
