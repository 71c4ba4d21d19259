"""Sources of batches, one file each; :func:`make_source` makes the one that a cell asks for."""

from __future__ import annotations

from collections.abc import Callable

from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.data.interface import NoSource, Share, Source
from torchscale.worker.data.loader import LoadedData, LoaderSource, Pool
from torchscale.worker.data.synthetic import SyntheticSource, sample_pool
from torchscale.worker.models.interface import Workload
from torchscale.worker.process_group import Ranks


def make_source(
    workload: Workload,
    cell: TrainingCell,
    ranks: Ranks,
    *,
    needed: bool = True,
    on_progress: Callable[[], None] | None = None,
) -> Source:
    """The cell's source of batches. Call it on every rank: together they write a missing dataset of
    shards, also those ranks for which no batch is ``needed``. ``on_progress`` is called repeatedly
    while they write.

    Raises:
        ValueError: the data does not fit the model, is damaged, or cannot be written.
    """
    degrees = cell.degrees
    share = Share(cell.copy_batch_size, degrees.data_index(ranks.rank), degrees.data)
    if cell.data_source == "synthetic":
        if not needed:
            return NoSource()
        return SyntheticSource(
            workload,
            share=share,
            seed=cell.seed,
            device=ranks.device,
            channels_last=cell.channels_last,
        )
    assert cell.loader is not None  # noqa: S101 - every other source has one
    if cell.data_source == "cifar100":
        from torchscale.worker.data import cifar  # noqa: PLC0415 - imports an HTTP client

        dataset = cifar.open_dataset(workload, cell, cell.loader, ranks)
    elif cell.data_source == "shards":
        from torchscale.worker.data import shards  # noqa: PLC0415 - only for this data source

        dataset = shards.open_dataset(
            workload, cell, cell.loader, ranks, on_progress or _ignore_progress
        )
    else:
        dataset = LoadedData(Pool(sample_pool(workload, share, cell.seed), share))
    if not needed:
        return NoSource()
    return LoaderSource(
        dataset,
        share=share,
        settings=cell.loader,
        device=ranks.device,
        channels_last=cell.channels_last,
    )


def _ignore_progress() -> None:
    """Default of ``on_progress``: nobody displays the progress."""
