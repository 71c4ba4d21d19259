from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.measure.process_io import (
    device_read_bytes,
    disk_bytes,
    transferred_bytes,
    unwritten_bytes,
)


def test_the_count_is_read_and_absent_where_there_is_none(tmp_path: Path) -> None:
    assert device_read_bytes(tmp_path) is None
    assert transferred_bytes(tmp_path) == 0
    (tmp_path / "self").mkdir()
    counts = tmp_path / "self" / "io"
    counts.write_text("rchar: 9\nwchar: 30\nread_bytes: 4096\nwrite_bytes: 5\n")
    assert device_read_bytes(tmp_path) == 4096
    assert transferred_bytes(tmp_path) == 39
    counts.write_text("rchar: 9\n")
    assert device_read_bytes(tmp_path) is None
    assert transferred_bytes(tmp_path) == 9


def test_what_is_not_on_the_disks_yet_is_added_up(tmp_path: Path) -> None:
    assert unwritten_bytes(tmp_path) == 0
    lines = ("MemFree:  900 kB", "Dirty:    12 kB", "Writeback:  3 kB", "WritebackTmp:  7 kB")
    (tmp_path / "meminfo").write_text("\n".join(lines))
    assert unwritten_bytes(tmp_path) == 15 * 1024


def test_a_disk_is_found_by_its_number(tmp_path: Path) -> None:
    assert disk_bytes(tmp_path, tmp_path / "devices") is None
    assert disk_bytes(tmp_path / "missing") is None
    number = tmp_path.stat().st_dev
    device = tmp_path / "devices" / f"{os.major(number)}:{os.minor(number)}"
    device.mkdir(parents=True)
    (device / "stat").write_text("  5  0  40  1  7  0  60  2  0  3  3\n")
    assert disk_bytes(tmp_path, tmp_path / "devices") == 512 * (40 + 60)
    (device / "stat").write_text("5 0\n")
    assert disk_bytes(tmp_path, tmp_path / "devices") is None


def test_only_what_the_page_cache_does_not_have_is_counted(tmp_path: Path) -> None:
    """Where the file system of the test has no device (tmpfs), nothing is counted at all."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4 << 20))
    drop_from_cache([path])
    if device_read_bytes() is None or resident_share([path]) != 0:
        pytest.skip("the kernel keeps this file in memory, or does not count")
    before = device_read_bytes() or 0
    path.read_bytes()
    cold = (device_read_bytes() or 0) - before
    path.read_bytes()
    warm = (device_read_bytes() or 0) - before - cold
    assert cold >= 4 << 20
    assert warm < 1 << 20
