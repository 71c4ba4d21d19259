"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

_STYLES = {
    "done": "green",
    "running": "cyan",
    "partial": "yellow",
    "failed": "red",
    "unreadable": "red",
}


def print_runs(rows: Sequence[tuple[str, str, str, int, int, str]], console: Console) -> None:
    """Two lines a run: id, time in UTC (ISO 8601), state, measured and planned cells; and the
    headline."""
    if not rows:
        console.print("No run here yet. Measure one: torchscale benchmark")
        return
    width = max(len(name) for name, *_ in rows)
    console.print(f"{'run':<{width}}  {'measured (UTC)':<16}  {'state':<10}  cells", style="bold")
    for name, time, state, done, planned, headline in rows:
        style = _STYLES.get(state, "dim")
        cells = "–"
        if planned:
            cells = f"{done} of {planned}"
        moment = time[:16].replace("T", " ")
        line = f"{escape(f'{name:<{width}}')}  {moment}  [{style}]{state:<10}[/{style}]  {cells}"
        console.print(line, soft_wrap=True)
        if headline:
            console.print(f"  {headline}", style="dim", markup=False, soft_wrap=True)
