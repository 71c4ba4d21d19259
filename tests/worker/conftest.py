"""Ranks that one process forks for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """See :mod:`tests.worker.forks`."""
    found = Forks()
    yield found
    found.end()
