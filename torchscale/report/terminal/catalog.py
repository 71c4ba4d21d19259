"""The names that a config may use, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.util.units import format_byte_rate, format_flops

Value = str | int | float | Mapping[str, float] | None
_JSON_ONLY = {"models": ("meaning", "splits"), "strategies": ("signals",)}
"""Columns that do not fit on a terminal."""


def print_catalog(title: str, rows: Sequence[Mapping[str, Value]], console: Console) -> None:
    """One kind of names as a table; ``title`` is the kind, ``rows`` have equal columns."""
    table = Table(
        box=None,
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="bold",
        show_header=len(rows[0]) > 2,
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
        table.add_row(*(escape(_text(column, row[column])) for column in columns))
    console.print(table)
    console.print()


def _text(column: str, value: Value) -> str:
    """Numbers with their unit; nothing where a value is not known."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_flops(rate)}" for name, rate in value.items())
    if isinstance(value, str):
        return value
    return _UNITS[column](value)


def _operations(flops: float) -> str:
    if flops >= 1e8:
        return f"{flops / 1e9:,.1f} GFLOP"
    return f"{flops / 1e6:,.1f} MFLOP"


_UNITS: Mapping[str, Callable[[float], str]] = {
    "parameters": lambda count: f"{count / 1e6:,.1f} M",
    "forward": _operations,
    "memory bandwidth": format_byte_rate,
    "per direction": format_byte_rate,
}
