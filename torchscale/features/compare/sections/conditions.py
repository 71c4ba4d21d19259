"""Differences between the sides in machine, software and settings, and the method of the
comparison."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.compare.analysis.change import MIN_LAUNCHES
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.analysis.judge import LEVEL
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.text.comparison import UNDISTURBED_LEGEND, table_names
from torchscale.features.compare.text.verdict import format_session_noise
from torchscale.report.document import Block, Bullets, Paragraph, Section
from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue, caution_where, only_if, shortened
from torchscale.util.units import format_percent
from torchscale.util.words import plural


def differences_section(
    differences: Sequence[SideDifference], names: Sequence[str], limit: int | None = None
) -> Section:
    """What differs between the sides: cells, machine, software and settings; the first ``limit`` of
    them."""
    if not differences:
        return Section(
            "Differences",
            "differences",
            (Paragraph("Machines, software and settings are the same."),),
        )
    columns = (Column("property"), *(Column(name, prose=True) for name in table_names(names)))
    rows = tuple(
        (
            TableValue(shortened(one.what), None, caution_where(one.forbids)),
            *(TableValue(shortened(value)) if value else DASH for value in one.values),
        )
        for one in differences[:limit]
    )
    blocks: list[Block] = [Table("Differences between the sides", columns, rows)]
    left = len(differences) - len(rows)
    if left:
        blocks.append(Paragraph(f"And {plural(left, 'more difference')}; HTML and JSON have all."))
    return Section("Differences", "differences", tuple(blocks))


def comparison_method_section(
    pairs: Sequence[Pair], names: Sequence[str], threshold: float, prices: Sequence[float]
) -> Section:
    """How changes, intervals and verdicts are computed, and what they do not cover."""
    changes = [change for pair in pairs for cell in pair.cells for change in cell.changes]
    items = [
        "A change is the ratio of geometric means over launches; its interval is Welch's t on the "
        "logarithms of each launch's figure. Steps are never pooled, because they are not "
        "independent.",
        f"Better or worse needs p < {LEVEL:g} after Holm's correction over the cells of a metric "
        f"and their mean, and a change beyond {format_percent(threshold, 1)}. With fewer than "
        f"{MIN_LAUNCHES} launches on a side a change is unclear.",
        *only_if(changes, format_session_noise(changes)),
        "The overall interval treats the noise of launches as independent between cells, and what "
        "sessions add as common to all of them.",
        "Where a launch was contended (other processes used its cores) or throttled, the change "
        "without that decides: from launches that nothing disturbed, from the time that ranks "
        "waited for a core, or because a disturbance makes a launch slower and never faster. Where "
        "nothing tells that, sides that were disturbed alike are compared as measured. Where one "
        "host measured both sides and its fixed work between batches took longer on one of them, "
        "the host itself was slower (slowed), and the change lies between the ratio and the ratio "
        "corrected by that work. Other flags are shown and change nothing.",
        *only_if(any(change.conditions for change in changes), UNDISTURBED_LEGEND),
    ]
    if prices:
        listed_prices = ", ".join(
            f"{shortened(name)} ${price:.2f}" for name, price in zip(names, prices, strict=True)
        )
        items.append(f"Prices of a device and hour: {listed_prices}.")
    items.append("More of how results are compared: torchscale docs compare.")
    return Section("Method and caveats", "method", (Bullets(tuple(items)),))
