"""The JSON of ``compare --against FILE --json``: where a machine lies among others."""

from __future__ import annotations

from typing import Literal

from torchscale.config.choices import Metric
from torchscale.schema.exports.base import (
    RESULTS_SCHEMA_VERSION,
    Export,
    PublishedDocument,
)


class LeftOutMachine(Export):
    """A machine that was measured under other conditions, so that it is not counted."""

    name: str
    condition: str
    """Which condition differs: ``torch``, ``NCCL``, ``driver``, ``transport`` …; of several the
    first."""
    here: str
    """Its value on this machine; empty where it is not recorded."""
    there: str
    """Its value on the other."""


class MachinePlace(Export):
    """One figure among those of other machines under the same conditions."""

    cell_id: str
    metric: Metric
    detail: str
    """Which of several figures of the metric: ``all_reduce fp32``; empty where there is one."""
    message_bytes: int | None
    """Message size at which a bus bandwidth was reached; null for other metrics."""
    value: float
    """Geometric mean over the launches of this machine, in the metric's unit."""
    launches: int
    spread: float | None
    """Standard deviation of the launches' logarithm; null with one launch."""
    others: tuple[float, ...]
    """The other machines' figures, the worst first."""
    worse: int
    """How many of them are worse."""
    equal: int
    percentile: float | None
    """Share of machines that are worse, from 0 to 1; null where too few machines are known to tell:
    ``interval`` is wider than a half."""
    interval: tuple[float, float] | None
    """95 %, exact binomial; null without other machines."""
    left_out: tuple[LeftOutMachine, ...]


class PeersExport(Export):
    """Where a machine lies among others."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    name: str
    """The run of this machine."""
    host: str
    machines: tuple[str, ...]
    """The others."""
    hosts: int
    """How many hosts these are of."""
    conditions: dict[str, str]
    """Conditions of this machine that others must share; those of its cells are joined."""
    places: tuple[MachinePlace, ...]


DOCUMENT = PublishedDocument(
    PeersExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale peers",
    "A machine among others: `torchscale compare NEW --against FILE --json`.",
)
