"""Sources of batches, one file each; :func:`make_source` makes the one that a cell asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.data.documents import StepDocuments, fill, plan_steps
from torchscale.worker.data.interface import NoSource, SampleShare, Source
from torchscale.worker.data.loader import LoadedData, LoaderSource, Pool
from torchscale.worker.data.synthetic import SyntheticSource, sample_pool
from torchscale.worker.models.interface import BatchOfTensors, Workload
from torchscale.worker.process_group import Ranks


def plan_documents(
    workload: Workload, cell: TrainingCell, ranks: Ranks
) -> list[StepDocuments] | None:
    """The documents in this rank's samples, step by step; ``None`` where all samples are alike.

    Raises:
        ValueError: the file of lengths cannot be read, or the model takes no documents.
    """
    if cell.lengths is None:
        return None
    length = workload.tokens_per_sample
    if length is None:
        raise ValueError(f"data.lengths: samples of {cell.model} have no tokens")
    return plan_steps(
        cell.lengths,
        seed=cell.seed,
        length=length,
        share=_share(cell, ranks),
        passes=cell.gradient_accumulation,
    )


def make_source(
    workload: Workload,
    cell: TrainingCell,
    ranks: Ranks,
    *,
    documents: Sequence[StepDocuments] | None = None,
    needed: bool = True,
    on_progress: Callable[[], None] | None = None,
) -> Source:
    """The cell's source of batches. Call it on every rank: together they write a missing dataset of
    shards, also those ranks for which no batch is ``needed``. ``on_progress`` is called repeatedly
    while they write. ``documents`` are those of :func:`plan_documents`.

    Raises:
        ValueError: the data does not fit the model, is damaged, or cannot be written.
    """
    share = _share(cell, ranks)
    if cell.data_source == "synthetic":
        if not needed:
            return NoSource()
        return SyntheticSource(
            _pool(workload, cell, share, documents),
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
        dataset = LoadedData(Pool(_pool(workload, cell, share, documents), share))
    if not needed:
        return NoSource()
    return LoaderSource(
        dataset,
        share=share,
        settings=cell.loader,
        device=ranks.device,
        channels_last=cell.channels_last,
    )


def _share(cell: TrainingCell, ranks: Ranks) -> SampleShare:
    degrees = cell.degrees
    return SampleShare(cell.copy_batch_size, degrees.data_index(ranks.rank), degrees.data)


def _pool(
    workload: Workload,
    cell: TrainingCell,
    share: SampleShare,
    documents: Sequence[StepDocuments] | None,
) -> list[BatchOfTensors]:
    if documents is None or cell.lengths is None:
        return sample_pool(workload, share, cell.seed)
    packed = cell.lengths.packing == "packed"
    pool = sample_pool(workload, share, cell.seed, steps=len(documents))
    return [fill(batch, step, packed=packed) for batch, step in zip(pool, documents, strict=True)]


def _ignore_progress() -> None:
    """Default of ``on_progress``: nobody displays the progress."""
