"""The report of a folder that is no run: a document and its figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.read.rendering import render_document
from torchscale.report.document import Document

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class ReportWithoutCells(ABC):
    """What reports of such folders share.

    Attributes:
        directory: Where it was read.
        held: What the folder holds, for errors.
    """

    directory: Path
    held: ClassVar[str]

    @property
    @abstractmethod
    def figures(self) -> BaseModel:
        """What is written as JSON."""

    @abstractmethod
    def document(self) -> Document:
        """All that is shown, apart from its format."""

    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown.

        Raises:
            UsageError: as CSV.
        """
        if kind is ReportFormat.CSV:
            raise UsageError(
                f"{self.directory} holds {self.held}, which has no rows for a spreadsheet",
                hint="use --format json",
            )
        if kind is ReportFormat.JSON:
            return (self.figures.model_dump_json(indent=1) + "\n").encode()
        return render_document(kind, self.document(), summary=summary)

    def print_cell(self, text: str, console: Console) -> None:
        """It has no cells.

        Raises:
            UsageError: always.
        """
        del console
        raise self._no_cells(text)

    def cell_json(self, text: str) -> str:
        """It has no cells.

        Raises:
            UsageError: always.
        """
        raise self._no_cells(text)

    def _no_cells(self, text: str) -> UsageError:
        return UsageError(f"--cell {text}: {self.directory} holds {self.held}, which has no cells")
