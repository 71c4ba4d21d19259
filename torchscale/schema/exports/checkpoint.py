"""The JSON of checkpoint cells. Sizes are bytes, times seconds, rates per second."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pydantic.dataclasses import dataclass

from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.exports.base import PUBLISHED
from torchscale.schema.exports.machine_cell import MachineCellExport


class Coldness(str, Enum):
    """Whether a load came from the disk; values are what files show."""

    PROVED = "proved"
    """No page was in memory before, and the kernel counted every byte fetched from a device."""
    NOT_PROVED = "not proved"
    """Pages were dropped, but the kernel did not count what was fetched instead."""
    WARM = "warm"
    """Pages were in memory."""


@dataclass(frozen=True, config=PUBLISHED)
class SaveFigures:
    """A synchronous save of all ranks."""

    payload_bytes: int
    seconds: float
    """Of the slowest rank, until the disk had the files."""
    bytes_per_second: float
    stop_seconds: float
    """From the last step's end to the next one's begin."""


@dataclass(frozen=True, config=PUBLISHED)
class LoadFigures:
    """A load by all ranks, the files dropped from the page cache before."""

    payload_bytes: int
    """Of the files, each once."""
    seconds: float
    bytes_per_second: float
    cold: Coldness
    """By the kernel's counters; only ``proved`` is the disk's rate."""
    doubt: str
    """Why it is not proved; empty where it is."""


@dataclass(frozen=True, config=PUBLISHED)
class AsyncSaveFigures:
    """An asynchronous save of all ranks."""

    payload_bytes: int
    stop_seconds: float
    durable_seconds: float
    """From the stop's begin until the disk had the files."""
    steps_before: int
    steps_during: int
    steps_after: int
    rate_before: float
    """Steps per second."""
    rate_during: float | None
    rate_after: float
    slowed: float | None
    """Share of the rate before and after that was missing during the save; null where it ended
    within too few steps."""
    scatter: float
    """Share by which the rates before and after differ."""
    host_bytes: int
    """Copies of the state in a host's memory that it is written from, all ranks of the host."""


@dataclass(frozen=True, config=PUBLISHED)
class RankRates:
    """One rank while it wrote and read; medians over repeats."""

    rank: int
    payload_bytes: int
    save: float | None
    """Bytes per second; null where it wrote nothing."""
    load: float | None
    """Null where it read nothing, or from memory."""
    save_cpu: float | None
    """Processor time over time while it wrote."""
    load_cpu: float | None


@dataclass(frozen=True, config=PUBLISHED)
class CheckpointFigures:
    """What a checkpoint costs. Single figures are medians over the repeats."""

    place: str
    filesystem: str
    state_bytes: int
    payload_bytes: int
    save_bytes_per_second: float
    load_bytes_per_second: float | None
    """Null where the page cache had part of the files."""
    cold_bytes_per_second: float | None
    """The same; null unless every load is proved cold."""
    stop_seconds: float
    async_stop_seconds: float | None
    durable_seconds: float | None
    slowed: float | None
    host_bytes: int | None
    busy_ways: tuple[str, ...]
    """``saving``, ``loading``: in which the processor limits the ranks, and not the disk."""
    saves: tuple[SaveFigures, ...]
    loads: tuple[LoadFigures, ...]
    async_saves: tuple[AsyncSaveFigures, ...]
    ranks: tuple[RankRates, ...]
    not_async: str
    """Why asynchronous saves were not measured; empty where they were, or not asked for."""

    @property
    def coldness(self) -> Coldness:
        """The worst of all loads."""
        return worst(self.loads).cold

    @property
    def doubt(self) -> str:
        """Why a load is not proved cold; empty where all are."""
        return worst(self.loads).doubt

    @property
    def is_slowing_shown(self) -> bool:
        """Whether the slowing is more than rates before and after scatter."""
        return self.slowed is not None and abs(self.slowed) > self.scatter

    @property
    def scatter(self) -> float:
        """The most by which rates before and after a save differ."""
        return max((save.scatter for save in self.async_saves), default=0.0)


_COLDEST_FIRST = tuple(Coldness)


def worst(loads: Sequence[LoadFigures]) -> LoadFigures:
    """The first of the loads of which least is known to come from the disk."""
    return max(loads, key=lambda load: _COLDEST_FIRST.index(load.cold))


class CheckpointExport(MachineCellExport):
    """Saving and loading the state of training."""

    cell: CheckpointCell
    figures: CheckpointFigures | None
    """Null unless the state is ``ok``."""
