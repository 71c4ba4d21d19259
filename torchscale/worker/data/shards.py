"""A dataset of numbered binary files: written once with random samples of the model's shape, memory-mapped, checked.

A sample's tensors lie one after the other. Floating-point numbers are kept in a byte each, as images are, and
integers in
four; they get their type back on the device.

::

    data_dir/shards-<hash of what is in them>/
      shard-00000.bin …
      manifest.json       sizes and checksums: written last, its presence says that the dataset is whole
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
from torchscale.schema.cell import Cell, Loader
from torchscale.schema.record import DataUse
from torchscale.store import atomic_write_model
from torchscale.worker.data.interface import generator_for
from torchscale.worker.data.loader import LoadedData
from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.models.interface import BatchOfTensors, Workload
from torchscale.worker.ranks import Ranks

_FORMAT = 1
_SHARD_BYTES = 128_000_000
_CHUNK_SAMPLES = 64
_READ_BYTES = 4 << 20
_SPREAD = 4.0
"""Normalised values between -4 and 4 fill a byte."""


class StoredField(Frozen):
    """One tensor of a sample: its name, shape, type in training, and type in the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored: str

    @property
    def count(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """In the file."""
        return self.count * np.dtype(self.stored).itemsize


class Layout(Frozen):
    """What a dataset holds; equal layouts are the same dataset."""

    version: int = _FORMAT
    fields: tuple[StoredField, ...]
    model: str
    samples: int
    shards: int
    seed: int

    @property
    def sample_bytes(self) -> int:
        """Of one sample."""
        return sum(field.size_bytes for field in self.fields)

    @property
    def name(self) -> str:
        """Of its directory."""
        return f"shards-{hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]}"

    def samples_of(self, shard: int) -> range:
        """Consecutive samples of a shard."""
        return range(self.samples * shard // self.shards, self.samples * (shard + 1) // self.shards)

    def shard_bytes(self, shard: int) -> int:
        """Size of a shard's file."""
        return len(self.samples_of(shard)) * self.sample_bytes


class Manifest(Frozen):
    """Written once every shard is."""

    layout: Layout
    checksums: tuple[str, ...] = Field(description="SHA-256 of each shard.")


@dataclass(frozen=True)
class Prepared:
    """What had to be done before a dataset could be used; counts of shards, over all ranks."""

    written: int
    repaired: int
    reused: int


def open_dataset(
    workload: Workload, cell: Cell, settings: Loader, ranks: Ranks, on_progress: Callable[[], None]
) -> LoadedData:
    """The dataset of this cell's model, made whole first.

    Raises:
        ValueError: it is damaged or incomplete and cannot be written.
    """
    layout = plan_layout(workload, cell, settings)
    directory = Path(settings.data_dir) / layout.name
    prepared = prepare(directory, layout, workload, ranks, verify=settings.verify, on_progress=on_progress)
    paths = [shard_path(directory, shard) for shard in range(layout.shards)]
    if settings.drop_cache and ranks.local_rank == 0:
        drop_from_cache(paths)
    ranks.align()
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
    return LoadedData(ShardSamples(directory, layout), finish=lambda batch: restore(batch, layout), use=use)


def plan_layout(workload: Workload, cell: Cell, settings: Loader) -> Layout:
    """As many samples as ``data.total_mb`` takes, in files of about 128 MB unless their number is given.

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
        raise ValueError(f"data.total_mb: {settings.total_mb} MB hold {samples} samples, fewer than {shards} shards")
    options = json.dumps(cell.model_options, sort_keys=True)
    return Layout(fields=fields, model=f"{cell.model} {options}", samples=samples, shards=shards, seed=cell.seed)


def prepare(
    directory: Path,
    layout: Layout,
    workload: Workload,
    ranks: Ranks,
    *,
    verify: bool,
    on_progress: Callable[[], None],
) -> Prepared:
    """Write what is missing, and again what is damaged; every rank does its part of the shards.

    Raises:
        ValueError: a shard is missing or damaged and cannot be written.
    """
    known = _read_manifest(directory, layout)
    mine = range(ranks.rank, layout.shards, ranks.world_size)
    checksums: dict[int, str] = {}
    written = repaired = 0
    for shard in mine:
        on_progress()
        path = shard_path(directory, shard)
        wanted = None if known is None else known.checksums[shard]
        found = _state_of(path, layout.shard_bytes(shard), wanted, verify=verify or known is None)
        if found is None:
            existed = path.exists()
            found = _write(path, layout, shard, workload, on_progress)
            written, repaired = written + (not existed), repaired + existed
        checksums[shard] = found
    parts = ranks.gather_objects((checksums, written, repaired))
    together = {shard: checksum for part, _, _ in parts for shard, checksum in part.items()}
    manifest = Manifest(layout=layout, checksums=tuple(together[shard] for shard in range(layout.shards)))
    if ranks.rank == 0 and manifest != known:
        atomic_write_model(directory / "manifest.json", manifest)
    all_written, all_repaired = sum(part[1] for part in parts), sum(part[2] for part in parts)
    return Prepared(all_written, all_repaired, layout.shards - all_written - all_repaired)


class ShardSamples:
    """Samples of a dataset's files, which are mapped when first read, in whichever process reads."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        self._directory, self._layout = directory, layout
        self._begins = np.array([layout.samples_of(shard).start for shard in range(layout.shards)])
        self._files: dict[int, NDArray[np.uint8]] = {}

    def __len__(self) -> int:
        """Samples of all files."""
        return self._layout.samples

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """Tensors as they are stored."""
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
    """Give stored tensors their type in training."""
    restored: BatchOfTensors = {}
    for field in layout.fields:
        tensor, kind = batch[field.name], getattr(torch, field.dtype)
        restored[field.name] = (
            (tensor.to(kind) / 255 - 0.5) * (2 * _SPREAD) if kind.is_floating_point else tensor.to(kind)
        )
    return restored


def shard_path(directory: Path, shard: int) -> Path:
    """Of a shard's file."""
    return directory / f"shard-{shard:05d}.bin"


def _read_manifest(directory: Path, layout: Layout) -> Manifest | None:
    """The manifest of this very dataset; ``None`` where it is missing or cannot be read."""
    try:
        manifest = Manifest.model_validate_json((directory / "manifest.json").read_bytes())
    except (OSError, ValidationError):
        return None
    return manifest if manifest.layout == layout and len(manifest.checksums) == layout.shards else None


def _state_of(path: Path, size: int, wanted: str | None, *, verify: bool) -> str | None:
    """The checksum of a shard that is whole; ``None`` for one that is missing, of another size, or damaged."""
    try:
        if path.stat().st_size != size:
            return None
        if not verify and wanted is not None:
            return wanted
        found = _checksum(path)
    except OSError:
        return None
    return found if wanted is None or found == wanted else None


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _write(path: Path, layout: Layout, shard: int, workload: Workload, on_progress: Callable[[], None]) -> str:
    """Write a shard whole or not at all; its checksum.

    Raises:
        ValueError: it cannot be written.
    """
    size = layout.shard_bytes(shard)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if free < size:
            raise ValueError(f"{path} needs {size:,} bytes and {free:,} are free; choose another data.data_dir")
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
            f"{path} is missing or damaged and cannot be written: {error.strerror or error}; choose another "
            f"data.data_dir"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return digest.hexdigest()


def _chunks(layout: Layout, shard: int, workload: Workload) -> Iterator[bytes]:
    """A shard's bytes, drawn from the dataset's seed and its number."""
    generator = generator_for(layout.seed, shard)
    left = len(layout.samples_of(shard))
    while left:
        count = min(_CHUNK_SAMPLES, left)
        batch = workload.make_batch(count, generator)
        columns = [_stored(batch[field.name], field).reshape(count, -1).view(np.uint8) for field in layout.fields]
        yield np.concatenate(columns, axis=1).tobytes()
        left -= count


def _stored(tensor: torch.Tensor, field: StoredField) -> NDArray[Any]:
    values = tensor.contiguous().numpy()
    if tensor.is_floating_point():
        values = np.clip(np.rint((values / (2 * _SPREAD) + 0.5) * 255), 0, 255)
    return np.ascontiguousarray(values.astype(field.stored))


def _stored_type(tensor: torch.Tensor) -> str:
    if tensor.is_floating_point():
        return "uint8"
    return "int32" if tensor.dtype in (torch.int32, torch.int64) else str(tensor.numpy().dtype)
