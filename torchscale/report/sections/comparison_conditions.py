"""Differences between the sides in machine, software and settings, and the method of the comparison."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.comparison.compare import LEVEL, MIN_LAUNCHES
from torchscale.analysis.comparison.matching import Difference
from torchscale.report.document import (
    DASH,
    Bullets,
    Column,
    Paragraph,
    Section,
    Table,
    TableValue,
    Tone,
    shortened,
)
from torchscale.util.units import format_percent


def differences_section(differences: Sequence[Difference], names: Sequence[str]) -> Section:
    """Machine, software and settings in which the sides differ."""
    if not differences:
        return Section("Differences", "differences", (Paragraph("Machines, software and settings are the same."),))
    columns = (Column("property"), *(Column(shortened(name), prose=True) for name in names))
    rows = tuple(
        (
            TableValue(shortened(one.what), None, Tone.CAUTION if one.forbids else Tone.PLAIN),
            *(TableValue(shortened(value)) if value else DASH for value in one.values),
        )
        for one in differences
    )
    return Section(
        "Differences", "differences", (Table("Differences in machine, software and settings", columns, rows),)
    )


def comparison_method_section(names: Sequence[str], threshold: float, prices: Sequence[float]) -> Section:
    """How changes, intervals and verdicts are computed, and what they do not cover."""
    items = [
        "A change is the ratio of geometric means over launches; its interval is Welch's t on the logarithms of "
        "each launch's figure. Steps are never pooled, because they are not independent.",
        f"Better or worse needs p < {LEVEL:g} after Holm's correction over the cells of a metric and their mean, and "
        f"a change beyond {format_percent(threshold, 1)}. With fewer than {MIN_LAUNCHES} launches on a side no "
        "verdict is given.",
        "Intervals cover variation between launches. They do not cover differences between sessions (time of day, "
        "temperature, other jobs): measure the reference again to see those.",
        "The overall interval treats the cells' ratios as independent.",
    ]
    if prices:
        listed_prices = ", ".join(f"{shortened(name)} ${price:.2f}" for name, price in zip(names, prices, strict=True))
        items.append(f"Prices of a device and hour: {listed_prices}.")
    return Section("Method and caveats", "method", (Bullets(tuple(items)),))
