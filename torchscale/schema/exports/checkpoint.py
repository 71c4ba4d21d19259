"""The JSON of checkpoint cells. Sizes are bytes, times seconds, rates per second."""

from __future__ import annotations

from typing import Literal

from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.exports.base import Export
from torchscale.schema.exports.machine_cell import MachineCellExport


class SaveExport(Export):
    """A synchronous save of all ranks."""

    payload_bytes: int
    seconds: float
    """Of the slowest rank, until the disk had the files."""
    bytes_per_second: float
    stop_seconds: float
    """From the last step's end to the next one's begin."""


class LoadExport(Export):
    """A load by all ranks, the files dropped from the page cache before."""

    payload_bytes: int
    """Of the files, each once."""
    seconds: float
    bytes_per_second: float
    cold: Literal["proved", "not proved", "warm"]
    """By the kernel's counters; only the first is the disk's rate."""
    doubt: str
    """Why it is not proved; empty where it is."""


class AsyncSaveExport(Export):
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


class RankRatesExport(Export):
    """One rank while it wrote and read; medians over repeats."""

    rank: int
    payload_bytes: int
    save: float | None
    load: float | None


class CheckpointFiguresExport(Export):
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
    saves: tuple[SaveExport, ...]
    loads: tuple[LoadExport, ...]
    async_saves: tuple[AsyncSaveExport, ...]
    ranks: tuple[RankRatesExport, ...]
    not_async: str
    """Why asynchronous saves were not measured; empty where they were, or not asked for."""


class CheckpointExport(MachineCellExport):
    """Saving and loading the state of training."""

    cell: CheckpointCell
    figures: CheckpointFiguresExport | None
    """Null unless the state is ``ok``."""
