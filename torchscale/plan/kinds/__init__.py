"""How each kind of cell is planned: one module per kind, named after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

from torchscale.config.choices import CellKind, DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.door import Slot
from torchscale.plan.execution_target import ExecutionTarget
from torchscale.schema.cells.kinds import AnyCell

C = TypeVar("C")

START_SECONDS = (4.0, 30.0)
"""Seconds from the launcher to the first step, and from the last one to the record: from small
models to large ones."""


@dataclass(frozen=True)
class PlanRow:
    """A cell in the table of a plan, as plain text; what its kind does not have is empty."""

    name: str
    batch: str
    devices: str
    precision: str
    strategy: str


class PlanKind(Protocol[C]):
    """What a module of this package provides for its kind of cell."""

    def make_cells(
        self, experiment: Experiment, device: DeviceKind, counts: Sequence[int]
    ) -> Sequence[C]:
        """The cells that ``experiment`` asks for on devices of a kind, for these world sizes, in
        the order to run."""

    def skip_reason(self, cell: C, target: ExecutionTarget) -> str | None:
        """Why ``cell`` cannot run there, as far as it can be known before it is tried; ``None`` if
        it can."""

    def expected_seconds(self, cell: C) -> tuple[float, float]:
        """The least and the most that one launch should take, without a budget."""

    def least_step_seconds(self, cell: C, peak_flops: Mapping[str, float]) -> float:
        """Seconds that a step, or the whole cell, takes at least on devices with these rates by
        dtype; 0 where that is not known."""

    def table_row(self, cell: C) -> PlanRow:
        """The cell in the table of a plan."""


_KINDS: Slot[PlanKind[AnyCell]] = Slot("kinds, plan")


@cache
def plan_kind(name: CellKind) -> PlanKind[AnyCell]:
    """The module of a kind."""
    return _KINDS[name]
