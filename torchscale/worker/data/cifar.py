"""CIFAR-100 (Krizhevsky, 2009) in its binary format: a coarse label, a fine label, then 32 × 32
pixels of each colour."""

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

from torchscale.schema.cells.training import Loader, TrainingCell
from torchscale.schema.launch.rank import DataUse
from torchscale.util.files import atomic_write_bytes
from torchscale.worker.data.loader import LoadedData
from torchscale.worker.models.interface import BatchOfTensors, ImageInputs, Workload
from torchscale.worker.process_group import Ranks
from torchscale.worker.secrets import reveal

CLASSES = 100
_SIZE = 32
_RECORD_BYTES = 2 + 3 * _SIZE * _SIZE
_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
_MD5 = "03b5dce01913d631647c71ecec9e9cb8"
"""MD5 sum of the archive, as its page gives it."""
_MEMBER = "cifar-100-binary/train.bin"
_DOWNLOAD_SECONDS = 60.0
"""Time limit without any data from the server; not a bound on the whole download of 161 MB."""
_MEAN, _DEVIATION = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
"""Mean and standard deviation of each colour over the training images, on a scale from 0 to 1."""


def open_dataset(
    workload: Workload, cell: TrainingCell, settings: Loader, ranks: Ranks
) -> LoadedData:
    """The training images, in a new order every epoch; normalized and resized on the device.

    Raises:
        ValueError: the model takes no images or has fewer classes, or the data is missing or
            damaged.
    """
    images = workload.images
    if images is None:
        raise ValueError(
            f"data.source: cifar100 has images, but {cell.model} takes none; choose an image model"
        )
    if images.num_classes < CLASSES:
        raise ValueError(
            f"cifar100 has {CLASSES} classes, {cell.model} {images.num_classes}; set num_classes: "
            f"{CLASSES}"
        )
    directory = Path(str(reveal(settings.data_dir)))
    if ranks.local_rank == 0:
        find_file(directory, download=settings.download)
    ranks.barrier()
    path = find_file(directory, download=False)
    return LoadedData(
        Cifar100(path),
        finish=PixelTransform(images, ranks.device),
        shuffle_seed=cell.seed,
        use=DataUse(source="cifar100", path=str(path), size_bytes=path.stat().st_size),
    )


class Cifar100:
    """The samples of the binary file, memory-mapped."""

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            ValueError: the size is no multiple of a record's, or a label exceeds the classes.
        """
        size = path.stat().st_size
        if size == 0 or size % _RECORD_BYTES:
            raise ValueError(
                f"{path}: {size:,} bytes are not a multiple of the record size {_RECORD_BYTES:,}; "
                "download the file again"
            )
        self._records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD_BYTES)
        largest = int(self._records[:, 1].max())
        if largest >= CLASSES:
            raise ValueError(
                f"{path}: label {largest}, expected 0 to {CLASSES - 1}; this is not the binary "
                "CIFAR-100"
            )

    def __len__(self) -> int:
        """Number of images in the file."""
        return len(self._records)

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """``pixels``: uint8, (batch, 3, 32, 32); ``labels``: the fine ones, int64, (batch,)."""
        records = self._records[numbers]
        pixels = torch.from_numpy(records[:, 2:].reshape(-1, 3, _SIZE, _SIZE))
        return {"pixels": pixels, "labels": torch.from_numpy(records[:, 1].astype(np.int64))}


class PixelTransform:
    """Turns stored pixels into a model's inputs, on the device."""

    def __init__(self, images: ImageInputs, device: torch.device) -> None:
        self._images = images
        self._mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)

    def __call__(self, batch: BatchOfTensors) -> BatchOfTensors:
        """Normalize (batch, 3, 32, 32) uint8 pixels, and resize them to the model's image size."""
        pixels = (batch["pixels"].float() / 255 - self._mean) / self._deviation
        if self._images.image_size != _SIZE:
            size = (self._images.image_size, self._images.image_size)
            pixels = functional.interpolate(pixels, size=size, mode="bilinear", align_corners=False)
        return {self._images.pixels: pixels, self._images.labels: batch["labels"]}


def find_file(directory: Path, *, download: bool) -> Path:
    """The path of ``train.bin`` in ``directory`` or its ``cifar-100-binary``; downloaded if missing
    and allowed.

    Raises:
        ValueError: it is missing, or cannot be downloaded.
    """
    for path in (directory / "train.bin", directory / _MEMBER):
        if path.is_file():
            return path
    if not download:
        raise ValueError(
            f"no train.bin in {directory} or {directory / 'cifar-100-binary'}; unpack "
            "cifar-100-binary.tar.gz there, or set data.download: true"
        )
    return fetch(_URL, _MD5, directory)


def fetch(url: str, md5: str, directory: Path) -> Path:
    """Download the archive from ``url``, check its MD5 and unpack the training file into
    ``directory``; its path.

    Raises:
        ValueError: it cannot be downloaded, or its checksum is not ``md5``.
    """
    try:
        with urllib.request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as response:  # noqa: S310 - a constant of ours
            content = response.read()
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise ValueError(
            f"cannot download {url}: {error}; download it elsewhere and unpack it in {directory}"
        ) from error
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum != md5:
        raise ValueError(
            f"{url}: MD5 {checksum}, expected {md5}; not the published file, download it again"
        )
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
