"""The names that a config may use, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue
from torchscale.util.units import format_byte_rate, format_flops

Value = str | int | float | Mapping[str, float] | None
_JSON_ONLY = {"models": ("meaning", "splits"), "strategies": ("signals",)}
"""Columns that do not fit on a terminal."""
_NUMERIC = ("parameters", "forward")


def catalog_table(title: str, rows: Sequence[Mapping[str, Value]]) -> Table:
    """One kind of names as a table; ``title`` is the kind, ``rows`` have equal columns."""
    names = [name for name in rows[0] if name not in _JSON_ONLY.get(title, ())]
    columns = tuple(
        Column(
            "" if name in ("name", "meaning") else name,
            numeric=name in _NUMERIC,
            prose=name not in ("name", *_NUMERIC),
        )
        for name in names
    )
    return Table(
        title,
        columns,
        tuple(tuple(TableValue(_text(name, row[name])) for name in names) for row in rows),
    )


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
