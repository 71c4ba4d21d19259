"""What a user asks for of recordings, and how far reading them is."""

from __future__ import annotations

import pytest

from torchscale.errors import UsageError
from torchscale.features.trace.analyze import ReadingProgress, RecordingParts, make_parts


def test_parts_are_read_from_text() -> None:
    assert make_parts(None, None, None, None) == RecordingParts()
    parts = make_parts("0-3,9", 4, "10:", "2GB")
    assert (str(parts.ranks), parts.sample, str(parts.steps)) == ("0-3,9", 4, "10:")
    assert parts.memory_bytes == 2 << 30


def test_memory_that_is_no_size_is_refused() -> None:
    with pytest.raises(UsageError, match="--memory much: 'much' is not a number of bytes"):
        make_parts(None, None, None, "much")


def test_progress_tells_what_is_left_once_it_is_known() -> None:
    now, said = [0.0], list[str]()
    progress = ReadingProgress(said.append, lambda: now[0])
    for seconds, done in ((1.0, 100), (10.0, 212), (48.3, 1024)):
        now[0] = seconds
        progress.told(done, 1024)
    assert said == [
        "Reading the recordings: 100 of 1,024",
        "Reading the recordings: 212 of 1,024, about 38 s left",
        "Reading the recordings: 1,024 of 1,024",
    ]
