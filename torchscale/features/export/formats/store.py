"""Exporters that write into a directory or a store of runs: what they take, and what they say of
it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchscale.analysis.summary.run import RunSummary
from torchscale.errors import MachineError
from torchscale.report.figures.figure import ExportedCell, ExportedRun
from torchscale.report.values import only_if
from torchscale.schema.state import State
from torchscale.util.installation import install_command
from torchscale.util.redaction import redact_text

_LONGEST_REASON = 600


@dataclass(frozen=True)
class RunToStore:
    """A run with all that a store may keep of it.

    Attributes:
        directory: The run folder.
        summary: Summary of the run.
        exported: The run's cells with their parameters and figures.
        report: Renders the HTML report; ``None`` while the run goes on.
    """

    directory: Path
    summary: RunSummary
    exported: ExportedRun
    report: Callable[[], bytes] | None


@dataclass(frozen=True)
class Stored:
    """What was written.

    Attributes:
        place: Where, for people; without secrets.
        written: Lines on what was written: ``cells.parquet: 12 rows``.
        notes: What a user should know of it.
    """

    place: str
    written: tuple[str, ...]
    notes: tuple[str, ...] = ()


class StoreExporter(Protocol):
    """What a module of a store provides."""

    def store(self, run: RunToStore, place: str | None) -> Stored:
        """Write a run; what is there already is not written twice.

        Args:
            run: What to write.
            place: A directory or an address; ``None`` for the one that the program at hand is set
                up for.

        Raises:
            MachineError: a library is missing.
            UsageError: there is no such place.
            OutputError: it cannot be written.
        """


def missing_library(target: str, library: str) -> MachineError:
    """The error of a store whose library is not installed."""
    return MachineError(
        f"--to {target} needs {library}, which is not installed",
        hint=install_command(target),
    )


def one_line(error: Exception) -> str:
    """What a library says went wrong, without secrets and line ends; a request's whole address may
    be in it."""
    text = " ".join(redact_text(str(error)).split())
    if len(text) > _LONGEST_REASON:
        return f"{text[: _LONGEST_REASON - 1]}…"
    return text


def cells_to_store(run: RunToStore) -> tuple[ExportedCell, ...]:
    """The cells that have ended or were skipped. Those of which some launches are done too, where
    the run is stored as it is; without the report it is stored on the way, and they would only be
    replaced soon."""
    left_out = {State.WAITING, *only_if(run.report is None, State.PARTIAL)}
    return tuple(cell for cell in run.exported.cells if cell.state not in left_out)


def measured_values(cell: ExportedCell) -> dict[str, float]:
    """Name → figure, and the ends of its interval as figures of their own:
    ``step_mean_seconds_upper_95``. Figures of one name are told apart by their labels:
    ``bus_bandwidth_bytes_per_second/all_reduce``."""
    values: dict[str, float] = {}
    for figure in cell.figures:
        labels = "".join(f"/{value}" for value in figure.labels.values())
        values[f"{figure.name}{labels}"] = figure.value
        if figure.bounds is not None:
            for end, value in zip(("lower", "upper"), figure.bounds, strict=True):
                values[f"{figure.name}_{end}_95{labels}"] = value
    return values


def outcome_tags(run: ExportedRun, cell: ExportedCell) -> dict[str, str]:
    """What a cell is and how it ended, for stores to filter by."""
    tags = {
        "run": run.id,
        "run_name": run.name,
        "cell": cell.id,
        "kind": cell.kind,
        "state": cell.state.value,
        "reason": cell.reason,
        "flags": " ".join(cell.flags),
    }
    return {name: value for name, value in tags.items() if value}


def content_digest(*contents: Mapping[str, object]) -> str:
    """A digest that is equal for equal contents: what is stored under it need not be written
    again."""
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:32]
