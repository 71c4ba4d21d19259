"""The report of the folder of an acceptance: the same document as in its bundle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import BaseModel

from torchscale.config.choices import ReportFormat
from torchscale.errors import StoreError, UsageError
from torchscale.features.validate.baseline import read_acceptance
from torchscale.features.validate.document import validation_document
from torchscale.features.validate.fleet.document import fleet_document
from torchscale.features.validate.health.node import judged_alone
from torchscale.features.validate.names import FLEET, MOST_BYTES, MOST_FLEET_BYTES, VALIDATION
from torchscale.read.folders import Report
from torchscale.read.report import RunReport
from torchscale.read.without_cells import ReportWithoutCells
from torchscale.report.document import Document
from torchscale.report.formats.console import print_document
from torchscale.results.reader import read_summary
from torchscale.schema.node.fleet import FleetValidation
from torchscale.schema.node.validation import Validation
from torchscale.util.files import read_bounded
from torchscale.util.redaction import redact_model

if TYPE_CHECKING:
    from rich.console import Console

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class _ReportOfRun(ReportWithoutCells):
    """The folder is also a run: its cells and its CSV are those of the run."""

    held: ClassVar[str] = "an acceptance"

    def render(self, kind: ReportFormat, *, summary: bool = False) -> bytes:
        """The content of a file in any format but ``terminal``; a ``summary`` is short Markdown."""
        if kind is ReportFormat.CSV:
            return self._run.render(kind)
        return super().render(kind, summary=summary)

    def print_to(self, console: Console) -> None:
        """The whole document."""
        print_document(self.document(), console)

    def print_cell(self, text: str, console: Console) -> None:
        """One cell of the run as a vertical table."""
        self._run.print_cell(text, console)

    def cell_json(self, text: str) -> str:
        """One cell of the run, as its JSON has it."""
        return self._run.cell_json(text)

    @property
    def _run(self) -> RunReport:
        return RunReport(self.directory, read_summary(self.directory))


@dataclass(frozen=True)
class AcceptanceReport(_ReportOfRun):
    """Report of the folder of an acceptance."""

    found: Validation

    @property
    def figures(self) -> Validation:
        """The whole answer."""
        return self.found

    def document(self) -> Document:
        """As in the bundle."""
        acceptance = self.found.acceptance
        hostname = "this node" if acceptance is None else acceptance.run.hostname
        return validation_document(self.found, hostname, "")


@dataclass(frozen=True)
class FleetReport(_ReportOfRun):
    """Report of node 0's folder of an acceptance over several nodes."""

    found: FleetValidation

    @property
    def figures(self) -> FleetValidation:
        """The answer over all nodes."""
        return self.found

    def document(self) -> Document:
        """All nodes, and the rounds of each."""
        return fleet_document(self.found)


def acceptance_report(directory: Path) -> Report:
    """The report of the acceptance in a folder.

    Raises:
        StoreError: it cannot be read.
    """
    return AcceptanceReport(directory, _validation(directory))


def fleet_report(directory: Path) -> Report:
    """The report of the acceptance over several nodes in node 0's folder.

    Raises:
        StoreError: it cannot be read.
    """
    return FleetReport(directory, _read(directory / FLEET, FleetValidation, MOST_FLEET_BYTES))


def _validation(directory: Path) -> Validation:
    """What was said of the node; where that is not there, as of a command that was killed, what
    follows from the rounds."""
    if (directory / VALIDATION).exists():
        return _read(directory / VALIDATION, Validation)
    try:
        return redact_model(judged_alone(read_acceptance(directory)))
    except UsageError as error:
        raise StoreError(error.message, hint=error.hint) from error


def _read(path: Path, model: type[M], most_bytes: int = MOST_BYTES) -> M:
    try:
        found = model.model_validate_json(read_bounded(path, most_bytes))
    except (OSError, ValueError) as error:
        problem = str(error) if isinstance(error, OSError) else "damaged, or of another version"
        raise StoreError(f"cannot read {path}: {problem}") from error
    return redact_model(found)
