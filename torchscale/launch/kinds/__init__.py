"""How launches of each kind of cell differ: one module per kind, named after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from torchscale.config.choices import CellKind
from torchscale.door import Slot
from torchscale.schema.cells.kinds import AnyCell, AnyPayload, AnyRank

C_contra = TypeVar("C_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)
P = TypeVar("P")


class LaunchKind(Protocol[C_contra, R_contra, P]):
    """What a module of this package provides for its kind of cell, rank record and payload."""

    def environment(self, cell: C_contra) -> Mapping[str, str]:
        """Variables that the ranks of ``cell`` need beyond those of every launch."""

    def collect_payload(self, directory: Path, ranks: Sequence[R_contra]) -> P:
        """The payload from the ranks' records and whatever else the launch left in
        ``directory``."""

    def measured_window(self, payload: P) -> tuple[float, float] | None:
        """When all ranks measured, in seconds since the epoch; ``None`` where no telemetry is kept
        or a rank lacks."""

    def invalid_reason(self, payload: P) -> str:
        """Why the figures of a complete launch cannot be trusted; empty where they can."""

    def clean_up(self, cell: C_contra, directory: Path) -> None:
        """Once the ranks have ended: remove what they left besides the records in ``directory``."""


_KINDS: Slot[LaunchKind[AnyCell, AnyRank, AnyPayload]] = Slot("kinds, launch")


@cache
def launch_kind(name: CellKind) -> LaunchKind[AnyCell, AnyRank, AnyPayload]:
    """The module of a kind."""
    return _KINDS[name]
