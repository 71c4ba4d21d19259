"""Two ends of a doorbell, in one process and in two."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from torchscale.util.processes.doorbell import Doorbell


@pytest.fixture
def ends() -> Iterator[tuple[Doorbell, Doorbell]]:
    mine, theirs = Doorbell.pair()
    other = Doorbell(theirs)
    yield mine, other
    mine.close()
    other.close()


def seconds_of_wait(bell: Doorbell, most: float) -> float:
    began = time.monotonic()
    bell.wait(most)
    return time.monotonic() - began


def test_a_ring_before_the_wait_ends_it_and_no_second_one(
    ends: tuple[Doorbell, Doorbell],
) -> None:
    mine, theirs = ends
    assert not mine.wait(0.0)
    theirs.ring()
    theirs.ring()
    assert seconds_of_wait(mine, 60.0) < 30.0
    assert seconds_of_wait(mine, 0.05) >= 0.05
    theirs.ring()
    assert mine.wait(0.0)
    assert not mine.wait(0.0)
    mine.ring()
    assert seconds_of_wait(theirs, 60.0) < 30.0
    assert not mine.is_alone


def test_a_ring_during_the_wait_ends_it(ends: tuple[Doorbell, Doorbell]) -> None:
    mine, theirs = ends
    later = threading.Timer(0.1, theirs.ring)
    later.start()
    assert 0.05 < seconds_of_wait(mine, 60.0) < 30.0
    later.join()


def test_rings_that_nobody_hears_block_nobody(ends: tuple[Doorbell, Doorbell]) -> None:
    mine, theirs = ends
    for _ in range(100_000):
        mine.ring()
    assert seconds_of_wait(theirs, 60.0) < 30.0


def test_the_end_of_the_other_one_ends_one_wait_and_all_later_ones_last(
    ends: tuple[Doorbell, Doorbell],
) -> None:
    mine, theirs = ends
    theirs.close()
    assert seconds_of_wait(mine, 60.0) < 30.0
    assert mine.is_alone
    assert seconds_of_wait(mine, 0.05) >= 0.05
    mine.ring()


@pytest.mark.slow
def test_a_process_hears_another_one() -> None:
    program = (
        "import socket; from torchscale.util.processes.doorbell import Doorbell; "
        "bell = Doorbell(socket.socket(fileno=0)); bell.wait(60.0); bell.ring(); bell.wait(60.0)"
    )
    mine, theirs = Doorbell.pair()
    with subprocess.Popen([sys.executable, "-c", program], stdin=theirs.fileno()) as other:
        theirs.close()
        mine.ring()
        assert seconds_of_wait(mine, 60.0) < 30.0
        assert other.poll() is None
        mine.ring()
        assert seconds_of_wait(mine, 60.0) < 30.0
        assert mine.is_alone
        assert other.wait(30.0) == 0
    mine.close()
