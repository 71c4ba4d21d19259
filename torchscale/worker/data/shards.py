"""A dataset of numbered binary files (shards) with random samples of the model's shape: written
once, memory-mapped.

A sample's tensors lie one after the other. Floating-point numbers are kept in a byte each, as
images are, and integers in four bytes; they get their type back on the device.

::

    data_dir/shards-<hash of what is in them>/
      shard-00000.bin …
      manifest.json       sizes and checksums: written last: where it is, the dataset is complete
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from torchscale.schema.cells.training import Loader, TrainingCell
from torchscale.schema.launch.rank import DataUse
from torchscale.worker.data.loader import LoadedData
from torchscale.worker.data.shard_layout import Layout, plan_layout, restore, shard_path
from torchscale.worker.data.shard_writing import prepare
from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.models.interface import BatchOfTensors, Workload
from torchscale.worker.process_group import Ranks
from torchscale.worker.secrets import reveal


def open_dataset(
    workload: Workload,
    cell: TrainingCell,
    settings: Loader,
    ranks: Ranks,
    on_progress: Callable[[], None],
) -> LoadedData:
    """The dataset of this cell's model; missing and damaged shards are written first. Call it on
    every rank.

    Raises:
        ValueError: a shard is missing or damaged and cannot be written.
    """
    layout = plan_layout(workload, cell, settings)
    directory = Path(str(reveal(settings.data_dir))) / layout.name
    prepared = prepare(
        directory, layout, workload, ranks, verify=settings.verify, on_progress=on_progress
    )
    paths = [shard_path(directory, shard) for shard in range(layout.shards)]
    if settings.drop_cache and ranks.local_rank == 0:
        drop_from_cache(paths)
    ranks.barrier()
    resident = resident_share(paths)
    use = DataUse(
        source="shards",
        path=str(directory),
        size_bytes=layout.samples * layout.sample_bytes,
        shards_written=prepared.written,
        shards_repaired=prepared.repaired,
        shards_reused=prepared.reused,
        resident_share=resident,
        asked_cold=settings.drop_cache,
    )
    return LoadedData(
        ShardSamples(directory, layout), finish=lambda batch: restore(batch, layout), use=use
    )


class ShardSamples:
    """The samples of a dataset. Each process maps a file when it first reads from it."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        self._directory, self._layout = directory, layout
        self._begins = np.array([layout.samples_of(shard).start for shard in range(layout.shards)])
        self._files: dict[int, NDArray[np.uint8]] = {}

    def __len__(self) -> int:
        """Number of samples in all files."""
        return self._layout.samples

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """The samples with these numbers as one batch of CPU tensors, in their stored types."""
        rows = np.stack([self._row(number) for number in numbers])
        batch: BatchOfTensors = {}
        offset = 0
        for field in self._layout.fields:
            part = np.ascontiguousarray(rows[:, offset : offset + field.size_bytes])
            values = part.view(field.stored).reshape(len(numbers), *field.shape)
            batch[field.name] = torch.from_numpy(values)
            offset += field.size_bytes
        return batch

    def _row(self, number: int) -> NDArray[np.uint8]:
        shard = int(np.searchsorted(self._begins, number, side="right")) - 1
        row: NDArray[np.uint8] = self._file(shard)[number - int(self._begins[shard])]
        return row

    def _file(self, shard: int) -> NDArray[np.uint8]:
        if shard not in self._files:
            mapped = np.memmap(shard_path(self._directory, shard), dtype=np.uint8, mode="r")
            self._files[shard] = mapped.reshape(-1, self._layout.sample_bytes)
        return self._files[shard]
