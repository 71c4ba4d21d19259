"""JSON of github-action-benchmark, for ``tool: customBiggerIsBetter`` or ``customSmallerIsBetter``.

The action compares each entry with the last one of its name and knows neither intervals nor flags:
cells with flags are left out, and the interval stands in ``range``, which its charts show.
"""

from __future__ import annotations

import json

from torchscale.errors import UsageError
from torchscale.report.figures.figure import Exported, ExportedCell, ExportedRun, Figure
from torchscale.util.text import escape_json

_BETTER = {True: "more", False: "less"}


def render(run: ExportedRun) -> Exported:
    """The figures of which more is better.

    Raises:
        UsageError: there are none.
    """
    return render_direction(run, higher_is_better=True)


def render_direction(run: ExportedRun, *, higher_is_better: bool) -> Exported:
    """The figures of one direction.

    Raises:
        UsageError: there are none.
    """
    clean = [cell for cell in run.cells if not cell.flags]
    entries = [
        _entry(cell, figure)
        for cell in clean
        for figure in cell.figures
        if figure.higher_is_better is higher_is_better
    ]
    flagged = [cell for cell in run.cells if cell.flags and cell.figures]
    notes = [f"left out for its flags ({', '.join(cell.flags)}): {cell.id}" for cell in flagged]
    if not entries:
        better = _BETTER[higher_is_better]
        left_out = f"; left out for their flags: {len(flagged)}" * bool(flagged)
        raise UsageError(
            f"{run.name}: no cell has a figure of which {better} is better{left_out}",
            hint="`torchscale report` shows how each cell ended",
        )
    return Exported(
        escape_json(json.dumps(entries, indent=1, ensure_ascii=False)) + "\n", tuple(notes)
    )


def _entry(cell: ExportedCell, figure: Figure) -> dict[str, str | float]:
    labels = "".join(f" {name}={value}" for name, value in figure.labels.items())
    entry: dict[str, str | float] = {
        "name": f"{cell.id} {figure.name}{labels}",
        "unit": figure.unit or "1",
        "value": figure.value,
    }
    if figure.bounds is not None:
        entry["range"] = "{:.6g} to {:.6g} (95 %)".format(*figure.bounds)
    settings = {**cell.labels, **cell.properties}
    if settings:
        entry["extra"] = "\n".join(f"{name}: {value}" for name, value in settings.items())
    return entry
