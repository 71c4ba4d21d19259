"""The names that a config may use, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_JSON_ONLY = {"models": ("meaning", "splits"), "strategies": ("signals",)}
"""Columns that do not fit on a terminal."""


def print_catalog(title: str, rows: Sequence[Mapping[str, str]], console: Console) -> None:
    """One kind of names as a table; ``title`` is the kind, ``rows`` have equal columns."""
    table = Table(
        box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", show_header=len(rows[0]) > 2
    )
    columns = [column for column in rows[0] if column not in _JSON_ONLY.get(title, ())]
    for column in columns:
        number = column in ("parameters", "forward")
        table.add_column(
            "" if column in ("name", "meaning") else column,
            justify="right" if number else "left",
            no_wrap=column in ("name", "parameters", "forward"),
            overflow="fold",
            header_style="dim",
        )
    for row in rows:
        table.add_row(*(escape(row[column]) for column in columns))
    console.print(table)
    console.print()
