"""How throughput grows with devices: efficiency within a series, E(n) = T(n)·n₀ ÷ (T(n₀)·n)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torchscale.analysis.stats.ratios import log_ratio
from torchscale.analysis.training.flags import Flag
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.optional import sole

EXCELLENT = 0.9
"""Within 10 % of linear scaling: communication and waiting are almost fully hidden."""
GOOD = 0.8
"""Grades of ours for colours in tables, no standard: below 0.8 a fifth of the devices is lost."""


Grade = Literal["excellent", "good", "low"]


@dataclass(frozen=True)
class Efficiency:
    """Scaling efficiency of one cell against the smallest measured count of its series.

    Attributes:
        value: Ratio of the cells' throughputs, times n₀ ÷ n. 1 is ideal; above 1 is possible
            (caches) and shown as it is.
        baseline_world_size: n₀.
        interval: 95 % interval, Welch's from launch to launch; ``None`` with fewer than two
            launches on either side.
        flags: Flags of this cell and of the baseline: an efficiency is only as good as both.
    """

    value: float
    baseline_world_size: int
    interval: tuple[float, float] | None
    flags: tuple[Flag, ...]

    @property
    def grade(self) -> Grade | None:
        """``excellent`` above 90 %, ``good`` above 80 %, else ``low``; ``None`` where the interval
        is unknown or contains one of these limits."""
        if self.interval is None:
            return None
        return sole({grade_of(end) for end in self.interval})

    @property
    def is_vague(self) -> bool:
        """Whether the interval reaches further above the value than the value itself: it then says
        next to nothing."""
        return self.interval is not None and self.interval[1] > 2 * self.value


def grade_of(value: float) -> Grade:
    """The grade of an efficiency that is known exactly."""
    if value > EXCELLENT:
        return "excellent"
    if value > GOOD:
        return "good"
    return "low"


MeasuredCell = tuple[TrainingCell, Sequence[float], Sequence[Flag]]
"""A cell, the throughput of each of its launches, its flags."""


def efficiencies(measured: Iterable[MeasuredCell]) -> dict[str, Efficiency]:
    """Efficiency by cell id. The baseline itself has efficiency 1 by definition and none is given
    to a lone count."""
    series: dict[str, list[MeasuredCell]] = {}
    for item in measured:
        series.setdefault(item[0].series, []).append(item)
    by_cell = {}
    for members in series.values():
        baseline = min(members, key=lambda item: item[0].world_size)
        if len(members) > 1:
            by_cell.update({item[0].id: _efficiency(item, baseline) for item in members})
    return by_cell


def _efficiency(item: MeasuredCell, baseline: MeasuredCell) -> Efficiency:
    (cell, rates, flags), (base, base_rates, base_flags) = item, baseline
    both = tuple(sorted({*flags, *base_flags}))
    if cell.id == base.id:
        return Efficiency(1.0, base.world_size, None, both)
    ratio, share = log_ratio(rates, base_rates), base.world_size / cell.world_size
    value = ratio.value * share
    if ratio.interval is None:
        return Efficiency(value, base.world_size, None, both)
    low, high = ratio.interval
    return Efficiency(value, base.world_size, (low * share, high * share), both)
