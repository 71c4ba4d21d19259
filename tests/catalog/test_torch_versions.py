"""Which versions of PyTorch torchscale says that it was tested with."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from torchscale.catalog.torch_versions import TESTED, untested, versions_tested
from torchscale.util.versions import version_numbers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.14.1+cu130", "2.8.0", "2.11.0a0+nv25.12"])
def test_nothing_is_said_of_tested_versions(version: str) -> None:
    assert untested(version) is None


@pytest.mark.parametrize("version", ["2.12.0", "2.15.0+cu130", "3.0", "2.1.4", "of my own"])
def test_others_are_told_with_those_that_were_tested(version: str) -> None:
    assert "2.8, 2.10, 2.11, 2.13 and 2.14" in (untested(version) or "")


def test_what_the_tests_run_with_counts_as_tested() -> None:
    pin = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pin is not None
    others = importlib.import_module("torches").VERSIONS
    assert {version_numbers(version)[:2] for version in (pin[1], *others)} <= set(TESTED)


def test_the_docs_name_the_same() -> None:
    assert f"PyTorch {versions_tested()}" in (ROOT / "docs" / "tested-on.md").read_text()


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.13.0+cpu", (2, 13, 0)), ("3", (3,)), ("of my own", ()), ("2.11.0a0", (2, 11, 0))],
)
def test_versions_are_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(version) == numbers
