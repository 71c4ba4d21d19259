"""A run, or the checks of a node, in the format of another program."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from torchscale.config.choices import ExportTarget, ReportFormat
from torchscale.errors import UsageError
from torchscale.features.export.copies import copy_to_storage
from torchscale.features.export.formats.store import RunToStore, Stored, StoreExporter
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import chosen_run
from torchscale.read.report import RunReport
from torchscale.report.figures.figure import Exported, ExportedRun, Exporter
from torchscale.report.figures.run import exported_checks, exported_run
from torchscale.results.reader import read_summary
from torchscale.schema.node.validation import Validation
from torchscale.util.files import read_bounded
from torchscale.util.gc import gc_paused

_MAX_VALIDATION_BYTES = 16 * 1024 * 1024
"""The facts of a node with many devices and processes are under 1 MiB."""


@gc_paused()
def export(
    target: ExportTarget, source: Path | None = None, observer: Observer = SILENT
) -> Exported:
    """A run in another program's format.

    Args:
        target: Whose format; no store.
        source: A run folder, complete or not; or a file that ``validate --json`` wrote. Default:
            the newest run in ``./results``. A dashboard needs none.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: there is no run, the file is none of ``validate``, or nothing of it can be said
            in this format.
        StoreError: the run cannot be read.
    """
    if target is ExportTarget.GRAFANA_DASHBOARD:
        return text_exporter(target).render(ExportedRun(""))
    with observer.status("Reading the run"):
        run = _read(chosen_run(source, observer))
    return text_exporter(target).render(run)


@gc_paused()
def export_to_store(
    target: ExportTarget,
    source: Path | None = None,
    place: str | None = None,
    *,
    report: bool = True,
    observer: Observer = SILENT,
) -> Stored:
    """Write a run into a directory or a store of runs; what is there already is not written twice.

    Args:
        target: Which store.
        source: A run folder, complete or not. Default: the newest run in ``./results``.
        place: A directory or an address; by default where the other program is set up to look.
        report: Whether stores that keep files get the HTML report; without, they get only cells
            that have ended.
        observer: Shows what takes a while.

    Raises:
        UsageError: there is no run, or no place is named where one is needed.
        MachineError: the library of the store is not installed.
        StoreError: the run cannot be read.
        OutputError: the store cannot be written.
    """
    if target is ExportTarget.STORAGE:
        return copy_to_storage(source, place, observer)
    directory = chosen_run(source, observer)
    if directory.is_file():
        raise UsageError(f"--to {target.value} takes a run folder, not the file {directory}")
    exporter = cast(StoreExporter, _module(target))
    with observer.status("Reading the run"):
        summary = read_summary(directory)
        run = exported_run(summary, parameters=True)

    def rendered() -> bytes:
        return RunReport(directory, summary).render(ReportFormat.HTML)

    with observer.status(f"Writing to {target.value}"):
        return exporter.store(
            RunToStore(directory, summary, run, rendered if report else None), place
        )


def text_exporter(target: ExportTarget) -> Exporter:
    """The exporter of a format that is one text."""
    return cast(Exporter, _module(target))


def _module(target: ExportTarget) -> object:
    return import_module(f"torchscale.features.export.formats.{target.value.replace('-', '_')}")


def _read(source: Path) -> ExportedRun:
    if not source.is_file():
        return exported_run(read_summary(source))
    try:
        validation = Validation.model_validate_json(read_bounded(source, _MAX_VALIDATION_BYTES))
    except (OSError, ValidationError) as error:
        reason = ""
        if isinstance(error, OSError):
            reason = f": {error.strerror or error}"
        raise UsageError(
            f"{source}: neither a run folder nor the JSON of `torchscale validate --json`{reason}",
            hint="for example: torchscale validate --json > node.json; torchscale export --to "
            "junit node.json",
        ) from error
    return exported_checks(validation, source.stem)
