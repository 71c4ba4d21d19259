"""The job summary of GitHub Actions: Markdown of at most 900 kB, what failed first.

GitHub refuses a step's whole summary beyond 1,024 kB; other commands of the step may write to it
too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from torchscale.report.figures.figure import Exported, ExportedCell, ExportedRun, Figure
from torchscale.report.text.figures import EFFICIENCY, PEAK_ALLOCATED, STEP_MEAN, THROUGHPUT
from torchscale.report.values import only_if, optional_text
from torchscale.schema.node.check import Status
from torchscale.schema.state import State
from torchscale.util.text import strip_control

MAX_BYTES = 900_000
_MAX_TEXT = 300
"""Characters of a cell of a table: a reason may be a traceback."""
_SHOWN = tuple(one.key for one in (THROUGHPUT, STEP_MEAN, EFFICIENCY, PEAK_ALLOCATED))
"""Figures with a column of their own; cells without any show their first ones in one column."""
_MOST_OTHERS = 3
_WORST_FIRST = (Status.FAIL, Status.WARN, Status.PASS, Status.NOT_APPLICABLE)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&@$:])")
_T = TypeVar("_T")


def render(run: ExportedRun) -> Exported:
    """Counts, then a table of cells, or of checks."""
    lines = [f"## torchscale: {_escaped(run.name)}", ""]
    rows: list[str] = []
    if run.cells:
        lines += [_counts(run.cells, lambda cell: cell.state.value), ""]
        lines += _header(
            "cell", "state", *(name.replace("_", " ") for name in _SHOWN), "other figures", "flags"
        )
        rows = [
            _cell_row(cell) for cell in sorted(run.cells, key=lambda cell: cell.state is State.OK)
        ]
    elif run.checks:
        lines += [
            _counts(run.checks, lambda check: check.status.value),
            "",
            *_header("check", "outcome", "seen", "advice"),
        ]
        rows = [
            _row(check.title, check.status.value, check.seen, check.advice)
            for check in sorted(run.checks, key=lambda check: _WORST_FIRST.index(check.status))
        ]
    return _bounded(lines, rows)


def _bounded(lines: Sequence[str], rows: Sequence[str]) -> Exported:
    """Markdown with as many rows as there is room for, and a note on how many are left out."""
    left = (
        MAX_BYTES - sum(len(line.encode()) + 1 for line in lines) - 200
    )  # for the line that says what is missing
    kept = []
    for row in rows:
        left -= len(row.encode()) + 1
        if left < 0:
            break
        kept.append(row)
    missing = len(rows) - len(kept)
    note = f"{missing} of {len(rows)} rows do not fit into a job summary and were left out"
    shown = [*lines, *kept, *only_if(missing, "", f"*{note}.*")]
    return Exported("".join(f"{line}\n" for line in shown), only_if(missing, note))


def _cell_row(cell: ExportedCell) -> str:
    by_name = {figure.name: figure for figure in cell.figures if not figure.labels}
    shown = [optional_text(by_name.get(name), _figure) for name in _SHOWN]
    others: list[Figure] = []
    if not by_name.keys() & set(_SHOWN):
        others = list(cell.figures)
    texts = [
        " ".join([figure.name, *figure.labels.values(), _figure(figure)])
        for figure in others[:_MOST_OTHERS]
    ]
    if len(others) > _MOST_OTHERS:
        texts.append(f"{len(others) - _MOST_OTHERS} more")
    state = cell.state.value
    if cell.state is not State.OK:
        state += f": {cell.reason}"
    return _row(cell.id, state, *shown, ", ".join(texts) or "–", ", ".join(cell.flags))


def _figure(figure: Figure) -> str:
    text = f"{figure.value:.4g} {figure.unit}".rstrip()
    if figure.bounds is not None:
        text += " ({:.4g} to {:.4g})".format(*figure.bounds)
    return text


def _counts(items: Sequence[_T], word: Callable[[_T], str]) -> str:
    words = [word(item) for item in items]
    counts = ", ".join(f"{words.count(each)} {each}" for each in dict.fromkeys(sorted(words)))
    return f"{counts}. Intervals: 95 %. – means not measured."


def _header(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def _row(*texts: str) -> str:
    return f"| {' | '.join(_escaped(text) for text in texts)} |"


def _escaped(text: str) -> str:
    """One line without Markdown, links, mentions or HTML in it."""
    text = " ".join(strip_control(text).split())
    if len(text) > _MAX_TEXT:
        text = f"{text[: _MAX_TEXT - 1]}…"
    return _MARKDOWN.sub(r"\\\1", text)
