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

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from torchscale.schema.base import Frozen
from torchscale.schema.cells.training import Loader, TrainingCell
from torchscale.schema.launch.rank import DataUse
from torchscale.util.files import atomic_write_model
from torchscale.worker.data.interface import generator_for
from torchscale.worker.data.loader import LoadedData
from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.models.interface import BatchOfTensors, Workload
from torchscale.worker.process_group import Ranks, local_world_size
from torchscale.worker.secrets import reveal

_FORMAT = 1
_SHARD_BYTES = 128_000_000
"""Size of a shard, in the range that is usual for shards of training data: read sequentially, and
enough of them to deal out over ranks."""
_CHUNK_SAMPLES = 64
"""Samples that are drawn and written at once: 64 images of 224 pixels take 39 MB as floats."""
_READ_BYTES = 4 << 20
"""Read at once for a checksum: large enough that system calls do not count."""
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


class Manifest(Frozen):
    """Layout and checksums of a complete dataset; written after the last shard."""

    layout: Layout
    checksums: tuple[str, ...] = Field(description="SHA-256 of each shard.")


@dataclass(frozen=True)
class Prepared:
    """Number of shards, over all ranks, that were written, written again, and used as they were."""

    written: int
    repaired: int
    reused: int


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


def prepare(
    directory: Path,
    layout: Layout,
    workload: Workload,
    ranks: Ranks,
    *,
    verify: bool,
    on_progress: Callable[[], None],
) -> Prepared:
    """Write missing and damaged shards, which are dealt out over the ranks of each machine: every
    machine gets all of them, on its own disk or, with the same content, on a shared one. Call it on
    every rank.

    Raises:
        ValueError: a shard is missing or damaged and cannot be written.
    """
    existing = _read_manifest(directory, layout)
    here = local_world_size(ranks.world_size)
    mine = range(ranks.local_rank, layout.shards, here)
    checksums: dict[int, str] = {}
    written = repaired = 0
    for shard in mine:
        on_progress()
        path = shard_path(directory, shard)
        expected = None if existing is None else existing.checksums[shard]
        checksum = _valid_checksum(
            path, layout.shard_bytes(shard), expected, verify=verify or existing is None
        )
        if checksum is None:
            existed = path.exists()
            checksum = _write(path, layout, shard, workload, on_progress)
            written, repaired = written + (not existed), repaired + existed
        checksums[shard] = checksum
    parts = ranks.gather_objects((checksums, written, repaired))
    all_checksums = {shard: checksum for part, _, _ in parts for shard, checksum in part.items()}
    manifest = Manifest(
        layout=layout, checksums=tuple(all_checksums[shard] for shard in range(layout.shards))
    )
    if ranks.local_rank == 0 and manifest != existing:
        atomic_write_model(directory / "manifest.json", manifest)
    first = parts[:here]  # of one machine
    all_written, all_repaired = sum(part[1] for part in first), sum(part[2] for part in first)
    return Prepared(all_written, all_repaired, layout.shards - all_written - all_repaired)


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


def _read_manifest(directory: Path, layout: Layout) -> Manifest | None:
    """The manifest, if it can be read and is of this layout; else ``None``."""
    try:
        manifest = Manifest.model_validate_json((directory / "manifest.json").read_bytes())
    except (OSError, ValidationError):
        return None
    if manifest.layout == layout and len(manifest.checksums) == layout.shards:
        return manifest
    return None


def _valid_checksum(path: Path, size: int, expected: str | None, *, verify: bool) -> str | None:
    """The checksum of a valid shard; ``None`` for one that is missing, of another size, or
    damaged."""
    try:
        if path.stat().st_size != size:
            return None
        if not verify and expected is not None:
            return expected
        checksum = _checksum(path)
    except OSError:
        return None
    if expected in (None, checksum):
        return checksum
    return None


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _write(
    path: Path, layout: Layout, shard: int, workload: Workload, on_progress: Callable[[], None]
) -> str:
    """Write a shard, whole or not at all. Returns its SHA-256.

    Raises:
        ValueError: the disk is full or the file cannot be written.
    """
    size = layout.shard_bytes(shard)
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if free < size:
            raise ValueError(
                f"{path} needs {size:,} bytes, {free:,} are free; free space or choose another "
                "data.data_dir"
            )
        with temporary.open("wb") as file:
            for chunk in _chunks(layout, shard, workload):
                file.write(chunk)
                digest.update(chunk)
                on_progress()
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ValueError(
            f"{path} is missing or damaged and cannot be written: {error.strerror or error}; "
            "choose another data.data_dir"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return digest.hexdigest()


def _chunks(layout: Layout, shard: int, workload: Workload) -> Iterator[bytes]:
    """The bytes of a shard, drawn from the dataset's seed and the shard's number."""
    generator = generator_for(layout.seed, shard)
    remaining = len(layout.samples_of(shard))
    while remaining:
        count = min(_CHUNK_SAMPLES, remaining)
        batch = workload.make_batch(count, generator)
        columns = [
            _stored(batch[field.name], field).reshape(count, -1).view(np.uint8)
            for field in layout.fields
        ]
        yield np.concatenate(columns, axis=1).tobytes()
        remaining -= count


def _stored(tensor: torch.Tensor, field: StoredField) -> NDArray[Any]:
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
