"""The real Nsight Systems for tests: what scripts/nsight-systems.sh fetched into build/."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.campaign import cases

DEFAULT = "2023.4"
"""Fetched for every `make test-systems` (Makefile): of a stable release, so that it stays in the archive
for years."""
VERSIONS = cases([DEFAULT], ["2022.4", "2024.2"])


def nsys_path(version: str) -> str:
    """``PATH`` with this version first. Outside CI, tests that use it are skipped where it could
    not be fetched."""
    directory = Path(__file__).parents[1] / "build" / "nsight-systems" / version / "usr" / "bin"
    if not (directory / "nsys").exists():
        told = (
            f"no Nsight Systems {version}: scripts/nsight-systems.sh {version} could not fetch it"
        )
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    return f"{directory}{os.pathsep}{path_without_nsys()}"


def path_without_nsys() -> str:
    """``PATH`` without the directories that hold an nsys."""
    directories = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(item for item in directories if not (Path(item) / "nsys").exists())
