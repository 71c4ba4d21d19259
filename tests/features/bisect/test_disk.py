"""A disk that runs full while something is built."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchscale.errors import OutputError
from torchscale.features.bisect.disk import Disk

GIB = 1 << 30


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, int]:
    """Bytes and inodes that are free in ``cache`` and ``tmp``; ``total`` inodes of either."""
    found = {"cache": GIB, "tmp": GIB, "cache inodes": 1000, "total": 5000}

    def statvfs(path: Path) -> SimpleNamespace:
        place = "cache" if path == tmp_path / "cache" else "tmp"
        inodes = found.get(f"{place} inodes", 1000)
        return SimpleNamespace(
            f_bfree=found[place] // 4096, f_bavail=found[place] // 4096, f_frsize=4096,
            f_ffree=inodes, f_favail=inodes, f_files=found["total"],
        )  # fmt: skip

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return found


def test_with_space_a_failure_is_what_it_is(free: dict[str, int], tmp_path: Path) -> None:
    del free
    disk = Disk(tmp_path / "cache")
    disk.check("build", "")
    disk.check("build", "No matching distribution found for demo==28")


@pytest.mark.parametrize("problem", ["", "exit code 1"])
def test_a_full_disk_of_the_cache_is_named_even_if_nothing_failed(
    free: dict[str, int], tmp_path: Path, problem: str
) -> None:
    free["cache"] = 8192
    with pytest.raises(OutputError, match=r"cannot build: the disk of .*cache is full: 8.00 KiB"):
        Disk(tmp_path / "cache").check("build", problem)


def test_one_of_temporary_files_is_named_only_if_something_failed(
    free: dict[str, int], tmp_path: Path
) -> None:
    free["tmp"] = 0
    disk = Disk(tmp_path / "cache")
    disk.check("build", "")
    with pytest.raises(OutputError, match=r"tmp is full") as raised:
        disk.check("build", "exit code 1")
    assert "TMPDIR" in str(raised.value.hint)


def test_what_was_full_for_a_moment_counts(free: dict[str, int], tmp_path: Path) -> None:
    """A program that fails removes what it wrote."""
    disk = Disk(tmp_path / "cache")
    ask = disk.watched(lambda: True)
    free["cache"] = 0
    assert ask() is True
    free["cache"] = GIB
    with pytest.raises(OutputError, match="0 B were left"):
        disk.check("build", "exit code 1")


@pytest.mark.parametrize(("total", "is_full"), [(5000, True), (0, False)])
def test_inodes_count_where_there_are_any(
    free: dict[str, int], tmp_path: Path, total: int, is_full: bool
) -> None:
    free["cache inodes"], free["total"] = 0, total
    disk = Disk(tmp_path / "cache")
    if not is_full:
        disk.check("build", "exit code 1")
        return
    with pytest.raises(OutputError, match="no inode was left"):
        disk.check("build", "exit code 1")


@pytest.mark.parametrize(
    "said",
    [
        "error: unable to write file big: No space left on device",
        "OSError: [Errno 28] Kein Speicherplatz: 'x'",
        "failed to copy (os error 28)",
        "write error: Disk quota exceeded",
        "OSError: [Errno 122] x",
    ],
)
def test_what_programs_say_of_it(free: dict[str, int], tmp_path: Path, said: str) -> None:
    """A quota, or another place than those that are known."""
    del free
    with pytest.raises(OutputError, match=r"a disk was full \(.*cache had 1.00 GiB.*tmp had"):
        Disk(tmp_path / "cache").check("build", said)


def test_what_cannot_be_looked_at_is_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statvfs(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(os, "statvfs", statvfs)
    Disk(tmp_path).check("build", "exit code 1")
