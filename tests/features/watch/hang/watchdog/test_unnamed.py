"""Lines of old versions of torch that do not name their process group."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.watch.hang.watchdog.test_logs import verdict, write
from tests.features.watch.hang.watchdog_text import Version, asked_to_dump, timed_out
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.profiles.finding import Confidence

TAKEN = "lines of {} name no process group: they are taken for the default one's"
SEVERAL = "lines that name no process group are of several: ranks are not compared"


def waits(directory: Path, rank: int, place: int, version: Version = "2.2") -> None:
    write(directory / f"rank_{rank}.log", timed_out(rank, 54, 60, 53, version=version, place=place))


def is_told(directory: Path, rank: int, enqueued: int) -> None:
    text = asked_to_dump(rank, enqueued, enqueued, version="2.2")
    write(directory / f"rank_{rank}.log", text)


def test_ranks_above_all_that_wait_may_be_of_another_group(tmp_path: Path) -> None:
    for rank in (0, 1):
        waits(tmp_path, rank, rank)
    for rank in (2, 3):
        is_told(tmp_path, rank, 53)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (2, 3),
        Confidence.LOW,
    )
    assert TAKEN.format("ranks 0 and 1") in found.evidence


def test_the_last_place_is_of_the_default_group(tmp_path: Path) -> None:
    for rank in (0, 3):
        waits(tmp_path, rank, rank)
    for rank in (1, 2):
        is_told(tmp_path, rank, 53)
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((1, 2), Confidence.MEDIUM)
    assert not any("process group" in line for line in found.evidence)


def test_a_rank_that_completed_more_than_others_called_is_in_another_group(tmp_path: Path) -> None:
    for rank in (0, 1):
        waits(tmp_path, rank, rank)
    for rank in (2, 3):
        is_told(tmp_path, rank, 20)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())
    assert SEVERAL in found.evidence


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("size", [4, 6])
def test_one_place_that_is_not_the_rank_lets_nothing_be_assumed(
    tmp_path: Path, version: Version, size: int
) -> None:
    for rank in range(size - 1):
        waits(tmp_path, rank, rank % 2, version)
    is_told(tmp_path, size - 1, 53)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())
    assert SEVERAL in found.evidence
