"""Versions of PyTorch: the oldest that works, and those that torchscale was tested with."""

from __future__ import annotations

from torchscale.util.versions import version_numbers

OLDEST_TORCH = (2, 6)
"""fully_shard (FSDP2) became public in this release."""
TESTED = ((2, 8), (2, 10), (2, 11), (2, 13), (2, 14))
"""By the tests, 2.11 on a GPU as well (docs/tested-on.md). Others differ where torchscale uses what is
private to torch: its flight recorders, its launcher."""


def untested(version: str) -> str | None:
    """What to know of a version that torchscale was not tested with; ``None`` of the others.

    Args:
        version: Of PyTorch, as it names itself.
    """
    if version_numbers(version)[:2] in TESTED:
        return None
    return f"torchscale was tested with PyTorch {versions_tested()}, not with this version"


def versions_tested() -> str:
    """Those versions, as a list to read."""
    *names, last = (f"{major}.{minor}" for major, minor in TESTED)
    return f"{', '.join(names)} and {last}"
