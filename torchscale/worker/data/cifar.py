"""CIFAR-100 (Krizhevsky, 2009) in its binary format: a coarse label, a fine label, then 32 × 32 pixels of each
colour."""

from __future__ import annotations

import hashlib
import io
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from torchscale.schema.cell import Cell, Loader
from torchscale.schema.record import DataUse
from torchscale.store import atomic_write_bytes
from torchscale.worker.data.loader import LoadedData
from torchscale.worker.models.interface import BatchOfTensors, ImageInputs, Workload
from torchscale.worker.ranks import Ranks

CLASSES = 100
_SIZE = 32
_RECORD_BYTES = 2 + 3 * _SIZE * _SIZE
_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
_MD5 = "03b5dce01913d631647c71ecec9e9cb8"
"""Of the archive, as its page gives it."""
_MEMBER = "cifar-100-binary/train.bin"
_DOWNLOAD_SECONDS = 60.0
_MEAN, _DEVIATION = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
"""Of the training images' colours, from 0 to 1."""


def open_dataset(workload: Workload, cell: Cell, settings: Loader, ranks: Ranks) -> LoadedData:
    """The training images, in a new order every epoch; normalised and resized on the device.

    Raises:
        ValueError: the model takes no images or tells fewer classes, or the data is not there or damaged.
    """
    images = workload.images
    if images is None:
        raise ValueError(f"cifar100 are images, and {cell.model} takes none")
    if images.num_classes < CLASSES:
        raise ValueError(f"cifar100 has {CLASSES} classes; {cell.model} tells {images.num_classes}: raise num_classes")
    directory = Path(settings.data_dir)
    if ranks.local_rank == 0:
        find_file(directory, download=settings.download)
    ranks.align()
    path = find_file(directory, download=False)
    return LoadedData(
        Cifar100(path),
        finish=Finish(images, ranks.device),
        shuffle_seed=cell.seed,
        use=DataUse(source="cifar100", path=str(path), size_bytes=path.stat().st_size),
    )


class Cifar100:
    """The file's samples, memory-mapped."""

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            ValueError: its size is none of whole records, or it holds labels beyond the classes.
        """
        size = path.stat().st_size
        if size == 0 or size % _RECORD_BYTES:
            raise ValueError(f"{path}: {size:,} bytes are no whole records of {_RECORD_BYTES:,}; fetch the file again")
        self._records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD_BYTES)
        largest = int(self._records[:, 1].max())
        if largest >= CLASSES:
            raise ValueError(f"{path}: a label of {largest} among {CLASSES} classes; this is not the binary CIFAR-100")

    def __len__(self) -> int:
        """Images in the file."""
        return len(self._records)

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """``pixels`` as uint8 (batch, 3, 32, 32), and fine ``labels``."""
        records = self._records[numbers]
        pixels = torch.from_numpy(records[:, 2:].reshape(-1, 3, _SIZE, _SIZE))
        return {"pixels": pixels, "labels": torch.from_numpy(records[:, 1].astype(np.int64))}


class Finish:
    """From pixels as they are stored to what a model takes."""

    def __init__(self, images: ImageInputs, device: torch.device) -> None:
        self._images = images
        self._mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)

    def __call__(self, batch: BatchOfTensors) -> BatchOfTensors:
        """Normalise, and resize where the model's images are not of 32 pixels."""
        pixels = (batch["pixels"].float() / 255 - self._mean) / self._deviation
        if self._images.image_size != _SIZE:
            size = (self._images.image_size, self._images.image_size)
            pixels = functional.interpolate(pixels, size=size, mode="bilinear", align_corners=False)
        return {self._images.pixels: pixels, self._images.labels: batch["labels"]}


def find_file(directory: Path, *, download: bool) -> Path:
    """``train.bin`` in ``directory`` or in the archive's own folder there; fetched if it may be.

    Raises:
        ValueError: it is not there, or cannot be fetched.
    """
    for path in (directory / "train.bin", directory / _MEMBER):
        if path.is_file():
            return path
    if not download:
        raise ValueError(
            f"no train.bin in {directory} or {directory / 'cifar-100-binary'}; unpack cifar-100-binary.tar.gz "
            f"there, or "
            "set data.download: true"
        )
    return fetch(_URL, _MD5, directory)


def fetch(url: str, md5: str, directory: Path) -> Path:
    """Fetch the archive and unpack the training file.

    Raises:
        ValueError: it cannot be fetched or is not the file that was published.
    """
    try:
        with urllib.request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as answer:  # noqa: S310 - a constant of ours
            content = answer.read()
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise ValueError(f"cannot fetch {url}: {error}; fetch it elsewhere and unpack it in {directory}") from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise ValueError(f"{url}: its checksum is {found}, not {md5}: not the published file")
    path = directory / _MEMBER
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_bytes(path, _member(content))
    return path


def _member(archive: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
        file = files.extractfile(_MEMBER)
        if file is None:
            raise ValueError(f"the archive has no {_MEMBER}")
        return file.read()
