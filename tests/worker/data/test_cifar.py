"""CIFAR-100 in its real format, written here: labels, then the three colours one after the
other."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from torchscale.worker.data.cifar import Cifar100, PixelTransform, fetch, find_file
from torchscale.worker.models.interface import ImageInputs

CPU = torch.device("cpu")


def records(count: int) -> bytes:
    """Images of one colour each: red is the number, green twice that, blue 7."""
    parts = []
    for number in range(count):
        planes = [bytes([value]) * 1024 for value in (number, 2 * number, 7)]
        parts.append(bytes([number % 20, number % 100]) + b"".join(planes))
    return b"".join(parts)


def test_labels_and_pixels_are_where_the_format_has_them(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(records(12))
    images = Cifar100(path)
    assert len(images) == 12
    batch = images.__getitems__([3, 11])
    assert batch["labels"].tolist() == [3, 11]
    assert batch["labels"].dtype == torch.int64
    assert batch["pixels"].shape == (2, 3, 32, 32)
    assert batch["pixels"][0, :, 5, 9].tolist() == [3, 6, 7]
    assert batch["pixels"][1, :, 31, 0].tolist() == [11, 22, 7]


def test_a_model_gets_its_size_and_normalised_values() -> None:
    finish = PixelTransform(ImageInputs("pixel_values", "labels", 48, 100), CPU)
    pixels = torch.full((2, 3, 32, 32), 255, dtype=torch.uint8)
    batch = finish({"pixels": pixels, "labels": torch.tensor([1, 2])})
    assert set(batch) == {"pixel_values", "labels"}
    assert batch["pixel_values"].shape == (2, 3, 48, 48)
    assert batch["pixel_values"][0, 0, 0, 0].item() == pytest.approx((1 - 0.5071) / 0.2673)
    same = PixelTransform(ImageInputs("x", "y", 32, 100), CPU)(
        {"pixels": pixels, "labels": torch.tensor([1, 2])}
    )
    assert same["x"].shape == (2, 3, 32, 32)


@pytest.mark.parametrize("folder", [".", "cifar-100-binary"])
def test_the_file_is_found_in_the_directory_or_the_archives_own(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "train.bin").write_bytes(records(1))
    assert find_file(tmp_path, download=False) == tmp_path / folder / "train.bin"


def test_a_file_that_is_not_there_is_not_fetched_unasked(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"no train.bin in .* unpack cifar-100-binary.tar.gz there, or set data.download",
    ):
        find_file(tmp_path, download=False)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "0 bytes are not a multiple of the record size 3,074"),
        (records(2)[:-1], "6,147 bytes are not a multiple of the record size 3,074"),
        (b"\xff" * 3074, "label 255, expected 0 to 99"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=told):
        Cifar100(path)


def archive(directory: Path) -> tuple[str, str]:
    """URL and checksum of an archive as it is published."""
    path = directory / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as files:
        content = records(5)
        member = tarfile.TarInfo("cifar-100-binary/train.bin")
        member.size = len(content)
        files.addfile(member, io.BytesIO(content))
    return path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest()  # noqa: S324 - as it is published


def test_a_fetched_archive_is_checked_and_unpacked(tmp_path: Path) -> None:
    url, checksum = archive(tmp_path)
    path = fetch(url, checksum, tmp_path / "data")
    assert len(Cifar100(path)) == 5
    assert np.array_equal(
        np.fromfile(path, dtype=np.uint8), np.frombuffer(records(5), dtype=np.uint8)
    )


def test_another_file_than_the_published_one_is_not_kept(tmp_path: Path) -> None:
    url, _ = archive(tmp_path)
    with pytest.raises(ValueError, match=r"MD5 .*, expected 00; not the published file"):
        fetch(url, "00", tmp_path / "data")
    with pytest.raises(ValueError, match="download it elsewhere"):
        fetch((tmp_path / "none").as_uri(), "00", tmp_path / "data")
    assert not (tmp_path / "data").exists()
