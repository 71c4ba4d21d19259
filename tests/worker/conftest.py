"""Ranks that one process forks for all tests of a session, and a flight recorder for its groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker.forks import Forks
from torchscale.worker.watch.rings import rings


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """See :mod:`tests.worker.forks`."""
    found = Forks()
    yield found
    found.end()


@pytest.fixture(scope="session", autouse=True)
def flight_recorder() -> None:
    """torch makes its recorder when it is first read; up to torch 2.10 without a ring, unless one
    is asked for."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("TORCH_FR_BUFFER_SIZE", "2000")
        for ring in rings():
            ring.dump()
