"""Rows of runs as frames of pandas: a row a cell, a curve's point or a launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.formats.columns import cell_row
from torchscale.util.extras import require

if TYPE_CHECKING:
    import pandas as pd

COLLECTIVE_COLUMNS = (
    "run",
    "cell_id",
    "gpu_count",
    "operation",
    "dtype",
    "payload_bytes",
    "seconds",
    "busbw",
)
"""What a frame of collectives has where nothing was measured."""
_SERIES_COLUMNS = (
    "run",
    "model",
    "precision",
    "strategy",
    "batch_size",
    "scaling",
    "gpu_count",
)
"""What an efficiency is of, in the order of its rows."""


def frame(rows: Iterable[dict[str, object]], names: Sequence[str] = ()) -> pd.DataFrame:
    """``names`` are the columns where there is no row. Numbers stay numbers where some, or all,
    were not measured."""
    require("pandas", "a frame")
    import pandas as pd  # noqa: PLC0415 - 0.4 s, and only frames need it

    found = list(rows)
    if found:
        table: pd.DataFrame = pd.DataFrame(found)
    else:
        table = pd.DataFrame(columns=list(names))
    for name in table.columns[[kind.kind == "O" for kind in table.dtypes]]:
        known = table[name].dropna()
        if all(type(value) in (int, float) for value in known):
            table[name] = pd.to_numeric(table[name])
    return table


def training_row(run: str, cell: TrainingSummary) -> dict[str, object]:
    """The columns of ``summary.csv``, phases in seconds, and what the cell took."""
    row: dict[str, object] = {"run": run, **cell_row(cell)}
    figures = cell.figures
    if figures is None:
        return row
    phases = {f"{name}_seconds": value for name, value in vars(figures.phases).items()}
    return {
        **row,
        **phases,
        "startup_seconds": figures.startup_seconds,
        "measured_steps": figures.measured_steps,
        "measured_seconds": figures.measured_steps * figures.step_mean,
        "device": figures.device,
    }


def collective_rows(run: str, summary: RunSummary) -> Iterator[dict[str, object]]:
    """A row for each operation, dtype and size of every collectives cell."""
    for cell in summary.collectives:
        if cell.figures is None:
            continue
        for curve in cell.figures.curves:
            for point in curve.points:
                yield {
                    "run": run,
                    "cell_id": cell.cell.id,
                    "gpu_count": cell.cell.world_size,
                    "backend": cell.figures.backend,
                    "operation": curve.operation,
                    "dtype": curve.dtype,
                    "payload_bytes": point.payload_bytes,
                    "seconds": point.seconds,
                    "p95_seconds": point.p95,
                    "algbw": point.algbw,
                    "busbw": point.busbw,
                    "wrong_elements": point.wrong_elements,
                    "link_share": point.link_share,
                }


def launch_rows(run: str, summary: RunSummary) -> Iterator[dict[str, object]]:
    """A row for each launch with figures, of cells of any kind."""
    for one in summary.in_plan_order:
        for number, launch in enumerate(one.facts.launches):
            yield {
                "run": run,
                "cell_id": one.cell.id,
                "launch": number,
                "started_at": launch.started_at,
                **{key.text: value for key, value in launch.values.items()},
            }


def efficiency_frame(cells: pd.DataFrame) -> pd.DataFrame:
    """Those of the frame of training cells that have an efficiency, by series and device count."""
    names = [*_SERIES_COLUMNS, "samples_per_second"]
    wanted = [*names, "efficiency", "efficiency_low", "efficiency_high", "efficiency_flags"]
    known = cells
    if len(cells):
        known = cells[cells["efficiency"].notna()]
    found: pd.DataFrame = known.reindex(columns=wanted).sort_values(
        list(_SERIES_COLUMNS), ignore_index=True
    )
    return found
