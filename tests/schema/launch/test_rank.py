from __future__ import annotations

import pytest

from torchscale.schema.launch.rank import MemoryUse


@pytest.mark.parametrize(
    ("use", "peak"),
    [
        (MemoryUse(resident_before_bytes=100, resident_peak_bytes=300), 200),
        (MemoryUse(resident_before_bytes=100, resident_peak_bytes=100), 0),
        (MemoryUse(resident_before_bytes=100, resident_peak_bytes=99), None),
        (MemoryUse(resident_peak_bytes=300), None),
        (MemoryUse(peak_allocated_bytes=7, resident_before_bytes=9, resident_peak_bytes=1), 7),
    ],
)
def test_memory_does_not_shrink_to_its_peak(use: MemoryUse, peak: int | None) -> None:
    assert use.peak_bytes == peak
