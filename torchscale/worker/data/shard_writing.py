"""Writes the shards of a dataset that are missing or damaged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field, ValidationError

from torchscale.schema.base import Frozen
from torchscale.util.files import atomic_write_model
from torchscale.worker.data.interface import generator_for
from torchscale.worker.data.shard_layout import Layout, shard_path, stored_values
from torchscale.worker.models.interface import Workload
from torchscale.worker.process_group import Ranks, local_world_size

_CHUNK_SAMPLES = 64
"""Samples that are drawn and written at once: 64 images of 224 pixels take 39 MB as floats."""
_READ_BYTES = 4 << 20
"""Read at once for a checksum: large enough that system calls do not count."""


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
            stored_values(batch[field.name], field).reshape(count, -1).view(np.uint8)
            for field in layout.fields
        ]
        yield np.concatenate(columns, axis=1).tobytes()
        remaining -= count
