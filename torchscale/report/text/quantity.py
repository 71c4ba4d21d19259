"""A figure of a training cell: how it is computed, shown, and named in every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.table import Column, ColumnOf
from torchscale.report.values import DASH, TableValue, optional_text
from torchscale.util.interval_text import Interval, format_interval, with_interval


@dataclass(frozen=True)
class Quantity:
    """A figure of a training cell: how it is computed, shown, and named in every format.

    Attributes:
        heading: Heading of the figure's column.
        definition: Over which steps, launches and ranks, and how they are combined.
        value: Value in SI units, bytes or as a share; ``None`` was not measured.
        text: A value as people read it, with its unit unless the heading has it.
        interval: 95 % interval of the figure; ``None`` for a figure that has none.
        end_text: Writes an end of it with so many digits; ``None`` where the value is shown without
            its interval, since another figure shows the same.
        key: Name of the figure in exporters, with the unit at the end; empty where they do not have
            it.
        unit: There; empty for a share.
        higher_is_better: There; ``None`` where neither is.
        csv: Column of the figure in ``summary.csv``; empty where it has none.
        csv_scale: Factor from the unit of ``value`` to that of the column.
        panel: Title of its panel in a dashboard; empty where it has none.
        of_gpus: Whether it is of cells on GPUs, or on CPUs; ``None`` for both.
    """

    heading: str
    definition: str
    value: Callable[[TrainingSummary], float | None]
    text: Callable[[float], str]
    interval: Callable[[TrainingSummary], Interval | None] | None = None
    end_text: Callable[[float, int], str] | None = None
    key: str = ""
    unit: str = ""
    higher_is_better: bool | None = None
    csv: str = ""
    csv_scale: int = 1
    panel: str = ""
    of_gpus: bool | None = None

    def of(self, summary: TrainingSummary) -> TableValue:
        """The cell's value as a table shows it, with its interval; – where it was not measured."""
        value = self.value(summary)
        if value is None:
            return DASH
        return TableValue(with_interval(self.text(value), self.interval_text(summary)), value)

    def value_text(self, summary: TrainingSummary) -> str:
        """The value alone; – where it was not measured."""
        return optional_text(self.value(summary), self.text)

    def interval_text(self, summary: TrainingSummary) -> str:
        """``1,200 to 1,260``; empty where there is none, or it is not shown."""
        if self.interval is None or self.end_text is None:
            return ""
        value, ends = self.value(summary), self.ends(summary)
        if value is None or ends is None:
            return ""
        return format_interval(value, ends, self.end_text)

    def ends(self, summary: TrainingSummary) -> Interval | None:
        """Ends of the 95 % interval; ``None`` where there is none."""
        if self.interval is None:
            return None
        return self.interval(summary)

    @property
    def column(self) -> Column:
        """A column of it."""
        return self.shown.column

    @property
    def shown(self) -> ColumnOf[TrainingSummary]:
        """A column with its values."""
        return ColumnOf(self.heading, self.of, numeric=True)
