"""What is in the files of a dataset of shards, and how a sample's tensors are kept in them."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchscale.schema.base import Frozen
from torchscale.schema.cells.training import Loader, TrainingCell
from torchscale.worker.models.interface import BatchOfTensors, Workload

_FORMAT = 1
_SHARD_BYTES = 128_000_000
"""Size of a shard, in the range that is usual for shards of training data: read sequentially, and
enough of them to deal out over ranks."""
_SPREAD = 4.0
"""Values from -4 to 4 are mapped to a byte and others clipped: 1 in 16,000 normally distributed
numbers."""


class StoredField(Frozen):
    """One tensor of a sample: its name, shape, type in training, and type in the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored: str

    @property
    def count(self) -> int:
        """Number of elements in a sample."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of this tensor of one sample in the file."""
        return self.count * np.dtype(self.stored).itemsize


class Layout(Frozen):
    """Contents of a dataset; equal layouts are the same dataset."""

    version: int = _FORMAT
    fields: tuple[StoredField, ...]
    model: str
    samples: int
    shards: int
    seed: int

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample in the file."""
        return sum(field.size_bytes for field in self.fields)

    @property
    def name(self) -> str:
        """Name of the dataset's directory, with a hash of the layout."""
        return f"shards-{hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]}"

    def samples_of(self, shard: int) -> range:
        """Numbers of the samples in a shard: consecutive, and equally many but for one."""
        return range(self.samples * shard // self.shards, self.samples * (shard + 1) // self.shards)

    def shard_bytes(self, shard: int) -> int:
        """Size of a shard's file in bytes."""
        return len(self.samples_of(shard)) * self.sample_bytes


def plan_layout(workload: Workload, cell: TrainingCell, settings: Loader) -> Layout:
    """Layout of a dataset with as many samples as ``data.total_mb`` takes, in files of about 128 MB
    unless their number is given.

    Raises:
        ValueError: not even one sample fits in each file.
    """
    sample = workload.make_batch(1, torch.Generator().manual_seed(cell.seed))
    fields = tuple(
        StoredField(
            name=name,
            shape=tuple(tensor.shape[1:]),
            dtype=str(tensor.dtype).removeprefix("torch."),
            stored=_stored_type(tensor),
        )
        for name, tensor in sample.items()
    )
    total = settings.total_mb * 1_000_000
    samples = total // sum(field.size_bytes for field in fields)
    shards = settings.num_shards or max(1, round(total / _SHARD_BYTES))
    if samples < shards:
        raise ValueError(
            f"data.total_mb: {settings.total_mb} MB hold {samples} samples, fewer than {shards} "
            "shards; "
            "raise data.total_mb or lower data.num_shards"
        )
    options = json.dumps(cell.model_options, sort_keys=True)
    return Layout(
        fields=fields,
        model=f"{cell.model} {options}",
        samples=samples,
        shards=shards,
        seed=cell.seed,
    )


def restore(batch: BatchOfTensors, layout: Layout) -> BatchOfTensors:
    """Convert stored tensors to their types in training; bytes of floating-point fields are mapped
    back to -4 to 4."""
    restored: BatchOfTensors = {}
    for field in layout.fields:
        tensor, kind = batch[field.name], getattr(torch, field.dtype)
        restored[field.name] = (
            (tensor.to(kind) / 255 - 0.5) * (2 * _SPREAD)
            if kind.is_floating_point
            else tensor.to(kind)
        )
    return restored


def shard_path(directory: Path, shard: int) -> Path:
    """Path of a shard's file."""
    return directory / f"shard-{shard:05d}.bin"


def stored_values(tensor: torch.Tensor, field: StoredField) -> NDArray[Any]:
    """A tensor's values as its field's file has them."""
    values = tensor.contiguous().numpy()
    if tensor.is_floating_point():
        values = np.clip(np.rint((values / (2 * _SPREAD) + 0.5) * 255), 0, 255)
    return np.ascontiguousarray(values.astype(field.stored))


def _stored_type(tensor: torch.Tensor) -> str:
    if tensor.is_floating_point():
        return "uint8"
    if tensor.dtype in (torch.int32, torch.int64):
        return "int32"
    return str(tensor.numpy().dtype)
