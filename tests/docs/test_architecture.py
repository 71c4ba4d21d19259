"""docs/architecture.md names modules that exist, every room and wing, and the import rows that
import-linter checks."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import torchscale

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "torchscale"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
WINGS = sorted(
    f"{path.parents[1].name}/{path.parent.name}" for path in PACKAGE.glob("*/*/__init__.py")
)
TOP_LEVEL = ("torchscale", "tests", "benchmarks", "scripts", "docs", "configs")
MODULE = re.compile(r"torchscale(?:\.\w+)+")
PATH = re.compile(r"(\w+)/[\w./]*")


def named_paths() -> list[str]:
    """Files and folders: relative to the repository where they begin with one of its folders, else
    to the package."""
    matches = [PATH.fullmatch(text) for text in CODE]
    return sorted(
        {match[0] for match in matches if match is not None and match[1] in (*TOP_LEVEL, *ROOMS)}
    )


def rows(text: str) -> list[list[str]]:
    """Rooms of each import row, from the highest."""
    return [
        sorted(line.replace("torchscale.", "").split(" | ")) for line in text.splitlines() if line
    ]


@pytest.mark.parametrize("path", named_paths())
def test_every_named_file_exists(path: str) -> None:
    base = ROOT if path.split("/", maxsplit=1)[0] in TOP_LEVEL else PACKAGE
    assert (base / path).exists()


@pytest.mark.parametrize("name", sorted({text for text in CODE if MODULE.fullmatch(text)}))
def test_every_named_module_exists(name: str) -> None:
    public = name.removeprefix("torchscale.")
    assert public in torchscale.__all__ or importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("package", [*ROOMS, *WINGS])
def test_every_room_and_wing_is_named(package: str) -> None:
    assert f"{package}/" in CODE


def test_the_rows_are_those_that_are_checked() -> None:
    block = re.search(r"^```\n(cli \| api [^\n]*\n.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    layers = re.search(
        r"^layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE
    )
    assert block is not None
    assert layers is not None
    assert rows(block[1]) == rows("\n".join(re.findall(r'"([^"]+)"', layers[1])))
