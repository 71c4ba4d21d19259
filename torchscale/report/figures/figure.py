"""A figure of a cell with its interval, and a run as a list of them: what every exporter takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torchscale.schema.node.check import Check
from torchscale.schema.state import State
from torchscale.util.interval_text import Interval


@dataclass(frozen=True)
class Figure:
    """A figure that was measured; one that was not is not there.

    Attributes:
        name: Words and ``_``, with the unit at the end where it has one: ``step_mean_seconds``.
        unit: Unit for people: ``samples/s``.
        definition: Over what, and how it is combined.
        value: Value in SI units, bytes, or as a share.
        bounds: Lower and upper end of the 95 % interval; ``None`` where there is none.
        higher_is_better: ``None`` where neither is.
        labels: What tells figures of one name within a cell apart.
    """

    name: str
    unit: str
    definition: str
    value: float
    bounds: tuple[float, float] | None = None
    higher_is_better: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportedCell:
    """A cell: what it is, how it ended, what it measured.

    Attributes:
        id: Id of the cell.
        labels: The few properties that people select by: model, gpus.
        properties: Other settings of the cell.
        state, reason: How it ended.
        flags: Names of the flags.
        figures: Figures in the order of the report.
        parameters: Everything that was asked of the cell, and the machine it was measured on, by
            dotted name.
    """

    id: str
    kind: str
    labels: Mapping[str, str]
    properties: Mapping[str, str]
    state: State
    reason: str
    flags: tuple[str, ...]
    figures: tuple[Figure, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportedRun:
    """A run, or the checks of a node.

    Attributes:
        name: Name of the run.
        cells: Cells in plan order.
        checks: Checks of ``validate``; empty for a run.
        figures: Of the run, and of none of its cells.
        id: Id that is the same for every export of the run, also after its folder was moved or
            renamed; empty for checks.
    """

    name: str
    cells: tuple[ExportedCell, ...] = ()
    checks: tuple[Check, ...] = ()
    id: str = ""
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Exported:
    """A rendered run.

    Attributes:
        text: The content of the file.
        notes: What is not in it, one line each.
    """

    text: str
    notes: tuple[str, ...] = ()


class Exporter(Protocol):
    """What a module of this package provides."""

    def render(self, run: ExportedRun) -> Exported:
        """A run in the module's format.

        Raises:
            UsageError: nothing of the run can be said in this format.
        """


def finite_bounds(interval: Interval | None) -> Interval | None:
    """An interval, where both of its ends are numbers: formats of other tools have none for
    infinity."""
    if interval is None or not math.isfinite(interval[1]):
        return None
    return interval
