"""Whether a save or a load goes on is read from the kernel's counters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchscale.schema.launch.progress import Progress
from torchscale.worker.checkpoint import progress
from torchscale.worker.checkpoint.progress import FileProgress, followed
from torchscale.worker.rank_files import RankFiles

MEBIBYTE = 1 << 20
HERE = Path(__file__).parent


class Counters:
    """Stands for the kernel's."""

    transferred = 5 * MEBIBYTE
    unwritten = 100 * MEBIBYTE
    on_disk: int | None = None


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counters]:
    found = Counters()
    monkeypatch.setattr(progress, "transferred_bytes", lambda: found.transferred)
    monkeypatch.setattr(progress, "unwritten_bytes", lambda: found.unwritten)
    monkeypatch.setattr(progress, "disk_bytes", lambda directory: found.on_disk)
    yield found


def test_bytes_that_are_read_or_written_are_progress(counters: Counters) -> None:
    found = FileProgress(HERE)
    assert not found.moved()
    counters.transferred += MEBIBYTE // 2  # as the looks themselves do
    assert not found.moved()
    counters.transferred += MEBIBYTE // 2  # little by little
    assert found.moved()
    assert not found.moved()


def test_what_the_disk_does_is_progress_and_what_others_have_to_write_is_none(
    counters: Counters,
) -> None:
    counters.on_disk = MEBIBYTE
    found = FileProgress(HERE)
    counters.unwritten = 0
    assert not found.moved()
    counters.on_disk += MEBIBYTE
    assert found.moved()
    assert not found.moved()


def test_without_a_disk_less_to_write_than_since_the_last_own_byte_is_progress(
    counters: Counters,
) -> None:
    found = FileProgress(HERE)
    counters.transferred += 50 * MEBIBYTE
    counters.unwritten += 50 * MEBIBYTE
    assert found.moved()
    counters.unwritten -= 10 * MEBIBYTE  # during fsync
    assert found.moved()
    counters.unwritten += 30 * MEBIBYTE  # of others
    assert not found.moved()
    counters.unwritten -= 30 * MEBIBYTE
    assert not found.moved()
    counters.unwritten -= MEBIBYTE
    assert found.moved()


def test_only_what_moves_is_reported(tmp_path: Path) -> None:
    """By the counters of this kernel: a thread writes until three reports have come."""
    reports = threading.Semaphore(0)
    with followed(reports.release, tmp_path, seconds=0.02), (tmp_path / "file").open("wb") as file:
        for _ in range(3):
            while not reports.acquire(blocking=False):
                file.write(bytes(MEBIBYTE))
                file.seek(0)
    before = threading.active_count()
    with followed(reports.release, tmp_path, seconds=0.02):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_report_that_cannot_be_written_ends_nothing(counters: Counters) -> None:
    told = threading.Event()

    def report() -> None:
        told.set()
        raise OSError("No space left on device")

    with followed(report, HERE, seconds=0.01):
        counters.transferred += MEBIBYTE
        assert told.wait(30.0)
        told.clear()
        counters.transferred += MEBIBYTE
        assert told.wait(30.0)


def test_any_rank_says_that_it_is_alive(tmp_path: Path) -> None:
    for rank in (0, 1):
        files = RankFiles(tmp_path, rank)
        files.progress(Progress(phase="measuring", detail="save 1 of 2"))
        files.alive(Progress(phase="measuring", detail=f"rank {rank}"))
    lines = (tmp_path / "progress.jsonl").read_text().splitlines()
    found = [Progress.model_validate_json(line).detail for line in lines]
    assert found == ["save 1 of 2", "rank 0", "rank 1"]
