"""One file per source of batches; :func:`make_source` finds the cell's."""

from __future__ import annotations

from collections.abc import Callable

from torchscale.schema.cell import Cell
from torchscale.worker.data.interface import NoSource, Share, Source
from torchscale.worker.data.loader import LoadedData, LoaderSource, Pool
from torchscale.worker.data.synthetic import SyntheticSource, sample_pool
from torchscale.worker.models.interface import Workload
from torchscale.worker.ranks import Ranks


def make_source(
    workload: Workload,
    cell: Cell,
    ranks: Ranks,
    *,
    needed: bool = True,
    on_progress: Callable[[], None] | None = None,
) -> Source:
    """The cell's data, on every rank alike: ranks write a dataset of shards together where it is not there, also
    those by
    whom no batch is ``needed``. ``on_progress`` is called now and then while that lasts.

    Raises:
        ValueError: the data is not what the cell needs, damaged, or cannot be written.
    """
    degrees = cell.degrees
    share = Share(cell.copy_batch_size, degrees.data_index(ranks.rank), degrees.data)
    if cell.data_source == "synthetic":
        if not needed:
            return NoSource()
        return SyntheticSource(
            workload, share=share, seed=cell.seed, device=ranks.device, channels_last=cell.channels_last
        )
    assert cell.loader is not None  # noqa: S101 - every other source has one
    if cell.data_source == "cifar100":
        from torchscale.worker.data import cifar  # noqa: PLC0415 - brings an HTTP client

        dataset = cifar.open_dataset(workload, cell, cell.loader, ranks)
    elif cell.data_source == "shards":
        from torchscale.worker.data import shards  # noqa: PLC0415 - only where asked for

        dataset = shards.open_dataset(workload, cell, cell.loader, ranks, on_progress or _nothing)
    else:
        dataset = LoadedData(Pool(sample_pool(workload, share, cell.seed), share))
    if not needed:
        return NoSource()
    return LoaderSource(
        dataset, share=share, settings=cell.loader, device=ranks.device, channels_last=cell.channels_last
    )


def _nothing() -> None:
    """Nobody wants to know."""
