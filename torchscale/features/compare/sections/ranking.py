"""All sides of a comparison in one table, the one with the most samples per dollar first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.analysis.pair import Overall, Pair
from torchscale.features.compare.sections.cells import ratio_value, verdict_value
from torchscale.features.compare.text.comparison import (
    UNDISTURBED,
    format_interval,
    format_undisturbed,
    table_names,
)
from torchscale.features.compare.text.result import METRIC_LABELS
from torchscale.report.document import Section
from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue, shortened

_SAME = LogRatio(0.0)
"""The reference against itself."""


@dataclass(frozen=True)
class RankedSide:
    """A side with its price.

    Attributes:
        name: Name of the side.
        price: Price of a device and hour.
        speed, cost: Samples per second, and per dollar, against the reference over the cells that
            both measured; ``None`` for the reference, and where nothing was compared.
    """

    name: str
    price: float
    speed: Overall | None
    cost: Overall | None

    @property
    def ratio(self) -> LogRatio:
        """Samples per dollar against the reference's."""
        if self.cost is None:
            return _SAME
        return self.cost.ratio


def ranked_sides(
    pairs: Sequence[Pair], names: Sequence[str], prices: Sequence[float]
) -> list[RankedSide]:
    """Sides by samples per dollar, those of which nothing was compared last; empty without a price
    for each.

    Args:
        pairs: Each other side against the reference.
        names: Names of the sides, the reference first.
        prices: Prices of a device and hour on each of them.
    """
    if len(prices) != len(names):
        return []
    reference = RankedSide(names[0], prices[0], None, None)
    others = [
        RankedSide(name, price, _of(pair, Metric.THROUGHPUT), _of(pair, Metric.COST))
        for pair, name, price in zip(pairs, names[1:], prices[1:], strict=True)
    ]
    compared = [reference, *(side for side in others if side.cost is not None)]
    left = [side for side in others if side.cost is None]
    return [*sorted(compared, key=lambda side: -side.ratio.log), *left]


def ranking_table(sides: Sequence[RankedSide], reference: str) -> Table:
    """A row for each side."""
    columns = (
        Column("side"),
        Column("$ per device and hour", True),
        Column("cells", True),
        Column("samples/s", True),
        Column(METRIC_LABELS[Metric.COST], True),
        Column("95 % interval", True),
        Column(UNDISTURBED, True),
        Column("verdict on samples/$"),
    )
    rows = tuple(
        _row(side, name, is_reference=side.name == reference)
        for side, name in zip(sides, table_names([side.name for side in sides]), strict=True)
    )
    return Table(f"Sides by samples per dollar, against {shortened(reference)}", columns, rows)


def ranking_section(sides: Sequence[RankedSide], reference: str) -> Section:
    """The table as a section; without blocks where there are no prices."""
    return Section("Ranking", "ranking", (ranking_table(sides, reference),) if sides else ())


def _of(pair: Pair, metric: Metric) -> Overall | None:
    return next((one for one in pair.overall if one.metric is metric), None)


def _row(side: RankedSide, shown: str, *, is_reference: bool) -> tuple[TableValue, ...]:
    name, price = TableValue(shown), TableValue(f"{side.price:.2f}", side.price)
    if is_reference:
        return (name, price, DASH, *(TableValue("reference", 0.0) for _ in range(2)), *([DASH] * 3))
    if side.cost is None or side.speed is None:
        return (name, price, *([DASH] * 6))
    return (
        name,
        price,
        TableValue(str(side.cost.cells), side.cost.cells),
        ratio_value(side.speed.ratio),
        ratio_value(side.cost.ratio),
        TableValue(format_interval(side.cost.ratio)),
        TableValue(format_undisturbed(side.cost)),
        verdict_value(side.cost),
    )


def best_sentence(sides: Sequence[RankedSide]) -> str:
    """Which side gives the most samples per dollar, as far as it is known; empty without prices."""
    if not sides:
        return ""
    best, cost = sides[0], sides[0].cost
    if cost is None:
        runner = next((side.cost for side in sides if side.cost is not None), None)
        sure = runner is not None and runner.verdict is ChangeVerdict.WORSE
    else:
        sure = cost.verdict is ChangeVerdict.BETTER
    words = "Most samples per dollar as measured, which is unclear"
    if sure:
        words = "Most samples per dollar"
    return f"{words}: {shortened(best.name)}."
