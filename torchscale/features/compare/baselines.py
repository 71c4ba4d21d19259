"""Keep results under a name, and list what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import TorchscaleError
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.baseline_files import (
    BASELINES,
    baseline_path,
    existing_path,
    list_baselines,
    load_baseline,
    machines_of,
    read_saved,
    save_baseline,
)
from torchscale.features.compare.inputs import load_source, meant_source
from torchscale.features.compare.terminal.baselines import BaselineRow
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import run_folder
from torchscale.schema.run.result_set import MachineResults, ResultSet


@dataclass(frozen=True)
class SavedBaseline:
    """A baseline that was written: where, and its results."""

    path: Path
    results: ResultSet

    @property
    def measured_cells(self) -> int:
        """Cells with launches."""
        return sum(bool(cell.launches) for cell in self.results.cells)


def save(
    name: str,
    source: str,
    *,
    baselines: Path = BASELINES,
    replace: bool = False,
    observer: Observer = SILENT,
) -> SavedBaseline:
    """Keep the results of a results directory or a ``record.json`` under a name (writes).

    Raises:
        UsageError: the name is no file name or is taken, the source does not exist, or nothing was
            measured.
        StoreError: the source cannot be read.
        OutputError: the baseline cannot be written.
    """
    meant = meant_source(source, baselines)
    if Path(meant).is_dir():
        meant = str(run_folder(Path(meant), observer))
    with observer.status("Reading"):
        results = load_source(meant, baselines)
    return SavedBaseline(save_baseline(results, name, baselines, replace=replace), results)


def path(name: str, baselines: Path = BASELINES) -> Path:
    """Where a baseline is or would be.

    Raises:
        UsageError: the name is no plain file name.
    """
    return baseline_path(name, baselines)


def read(name: str, baselines: Path = BASELINES) -> ResultSet:
    """The results that were kept under a name.

    Raises:
        UsageError: there is no such baseline.
        StoreError: it cannot be read.
    """
    return load_baseline(name, baselines)


def read_kept(name: str, baselines: Path = BASELINES) -> ResultSet | MachineResults:
    """What was kept under a name, of one machine or several.

    Raises:
        UsageError: there is no such baseline.
        StoreError: it cannot be read.
    """
    return read_saved(existing_path(name, baselines))


def baseline_rows(baselines: Path = BASELINES) -> list[BaselineRow]:
    """Every baseline with what it holds; one that cannot be read has its ``problem`` instead."""
    return [_row(path) for path in list_baselines(baselines)]


def _row(path: Path) -> BaselineRow:
    try:
        saved = read_saved(path)
    except TorchscaleError as error:
        return BaselineRow(path.stem, problem=error.message)
    machines = machines_of(saved)
    cells = [cell for results in machines for cell in results.cells]
    measured = [cell for cell in cells if cell.launches]
    return BaselineRow(
        name=path.stem,
        measured_at=max((results.created_at for results in machines), default=""),
        device=", ".join(sorted({cell.device for cell in cells if cell.device})),
        machines=len(machines),
        cells=len({workload_key(cell.cell) for cell in measured}),
        launches=min((len(cell.launches) for cell in measured), default=0),
    )
