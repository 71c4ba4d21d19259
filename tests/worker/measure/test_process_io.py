from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.measure.process_io import device_read_bytes


def test_the_count_is_read_and_absent_where_there_is_none(tmp_path: Path) -> None:
    assert device_read_bytes(tmp_path) is None
    (tmp_path / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 5\n")
    assert device_read_bytes(tmp_path) == 4096
    (tmp_path / "io").write_text("rchar: 9\n")
    assert device_read_bytes(tmp_path) is None


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
