"""One side of a comparison by itself, such as a baseline: the figures of each cell."""

from __future__ import annotations

import statistics

from torchscale.features.compare.sections.calibration import calibration_blocks
from torchscale.features.compare.text.result import (
    format_level,
    format_state,
    measured_days,
    metric_label,
    result_label,
)
from torchscale.report.document import Block, Paragraph
from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue, optional_value, shortened
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.util.units import format_percent

_FEWEST_VALUES = 2
"""One value has no spread."""


def result_set_blocks(results: ResultSet) -> list[Block]:
    """The machine, the figures of each cell, and the cells without any."""
    device = ", ".join(sorted({cell.device for cell in results.cells if cell.device}))
    host = ""
    if results.environment is not None:
        host = f" on {results.environment.hostname}"
    text = f"{results.name}: measured {measured_days(results)}{host}, {device}"
    figures = tuple(
        _row(cell, key)
        for cell in results.cells
        for key in dict.fromkeys(key for launch in cell.launches for key in launch.values)
    )
    missing = tuple(
        (TableValue(result_label(cell)), TableValue(shortened(format_state(cell))))
        for cell in results.cells
        if not cell.launches
    )
    headings = ("geometric mean", "spread", "launches")
    columns: tuple[Column, ...] = (Column("cell", prose=True), Column("metric", prose=True))
    columns += tuple(Column(heading, numeric=True) for heading in headings)
    blocks: list[Block] = [Paragraph(shortened(text))]
    if figures:
        blocks.append(Table("Figures", columns, figures))
    if missing:
        reasons = (Column("cell", prose=True), Column("why", prose=True))
        blocks.append(Table("Cells without figures", reasons, missing))
    if results.calibration is not None:
        blocks += calibration_blocks(results, results.calibration)
    return blocks


def _row(cell: ResultCell, key: MetricKey) -> tuple[TableValue, ...]:
    values = [launch.values[key] for launch in cell.launches if key in launch.values]
    mean = statistics.geometric_mean(values)
    spread = DASH
    if len(values) >= _FEWEST_VALUES:
        spread = optional_value(statistics.stdev(values) / mean, format_percent)
    return (
        TableValue(result_label(cell)),
        TableValue(metric_label(key.metric, key.detail)),
        TableValue(format_level(key.metric, mean), mean),
        spread,
        TableValue(str(len(values)), len(values)),
    )
