"""A run, or the checks of a node, in the format of another program."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from torchscale.config.choices import ExportTarget
from torchscale.errors import UsageError
from torchscale.report.exporters.figure import Exported, ExportedRun, Exporter
from torchscale.report.exporters.run_figures import exported_checks, exported_run
from torchscale.results.reader import read_summary
from torchscale.run.observer import SILENT, Observer
from torchscale.run.runs import newest_run
from torchscale.schema.node.check import Validation
from torchscale.util.files import read_bounded
from torchscale.util.gc import gc_paused

_MAX_VALIDATION_BYTES = 16 * 1024 * 1024
"""The facts of a node with many devices and processes are under 1 MiB."""
_MODULES: Mapping[ExportTarget, str] = {target: target.value.replace("-", "_") for target in ExportTarget}


@gc_paused()
def export(target: ExportTarget, source: Path | None = None, observer: Observer = SILENT) -> Exported:
    """A run in another program's format.

    Args:
        target: Whose format.
        source: A run folder, complete or not; or a file that ``validate --json`` wrote. Default: the newest run in
            ``./results``.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: there is no run, the file is none of ``validate``, or nothing of it can be said in this format.
        StoreError: the run cannot be read.
    """
    exporter = cast(Exporter, import_module(f"torchscale.report.exporters.{_MODULES[target]}"))
    with observer.status("Reading the run"):
        run = _read(source if source is not None else newest_run(observer=observer))
    return exporter.render(run)


def _read(source: Path) -> ExportedRun:
    if not source.is_file():
        return exported_run(read_summary(source))
    try:
        validation = Validation.model_validate_json(read_bounded(source, _MAX_VALIDATION_BYTES))
    except (OSError, ValidationError) as error:
        reason = f": {error.strerror or error}" if isinstance(error, OSError) else ""
        raise UsageError(
            f"{source}: neither a run folder nor the JSON of `torchscale validate --json`{reason}",
            hint="for example: torchscale validate --json > node.json; torchscale export --to junit node.json",
        ) from error
    return exported_checks(validation, source.stem)
