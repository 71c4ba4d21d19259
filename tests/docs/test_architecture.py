"""docs/architecture.md names modules that exist, every room, feature, slot of the door and wing of
the core, and the imports that import-linter allows."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from pathlib import Path

import pytest

import torchscale
from torchscale.door import OFFERS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "torchscale"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PROJECT = (ROOT / "pyproject.toml").read_text()
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
MODULES = sorted(
    f"torchscale/{path.name}" for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")
)
WINGS = sorted(
    f"{path.parents[1].name}/{path.parent.name}" for path in PACKAGE.glob("*/*/__init__.py")
)
"""Features among them: they are the wings of their room."""
TOP_LEVEL = ("torchscale", "tests", "benchmarks", "scripts", "docs", "configs")
MODULE = re.compile(r"torchscale(?:\.\w+)+")
PATH = re.compile(r"(\w+)/[\w./]*")
COMMAND = re.compile(r"features\.(\w+)\.cli\.([\w.]+)")


def named_paths() -> list[str]:
    """Files and folders: relative to the repository where they begin with one of its folders, else
    to the package."""
    matches = [PATH.fullmatch(text) for text in CODE]
    return sorted(
        {match[0] for match in matches if match is not None and match[1] in (*TOP_LEVEL, *ROOMS)}
    )


def rows(text: str) -> list[list[str]]:
    """Rooms of each import row, from the highest."""
    return [sorted(line.split(" | ")) for line in text.splitlines() if line]


def features() -> dict[str, list[str]]:
    """Feature → the other columns of its row: what it is, imports, runs in ranks, its commands."""
    found = re.findall(r"^\| `features/(\w+)/` \| (.*) \|$", PAGE, re.MULTILINE)
    return {name: [column.strip() for column in columns.split(" |")] for name, columns in found}


@pytest.mark.parametrize("path", named_paths())
def test_every_named_file_exists(path: str) -> None:
    base = ROOT if path.split("/", maxsplit=1)[0] in TOP_LEVEL else PACKAGE
    assert (base / path).exists()


@pytest.mark.parametrize("name", sorted({text for text in CODE if MODULE.fullmatch(text)}))
def test_every_named_module_exists(name: str) -> None:
    public = name.removeprefix("torchscale.")
    assert public in torchscale.__all__ or importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("package", [*ROOMS, *WINGS])
def test_every_room_feature_and_wing_is_named(package: str) -> None:
    assert f"{package}/" in CODE


@pytest.mark.parametrize("module", MODULES)
def test_every_module_that_is_a_room_is_named(module: str) -> None:
    assert module in CODE


def test_every_slot_is_named() -> None:
    assert [slot for slot in OFFERS if slot not in CODE] == []


def test_features_have_the_commands_that_the_door_offers() -> None:
    offered: dict[str, set[str]] = defaultdict(set)
    for slot, prefix in (("commands", ""), ("commands of runs", "runs ")):
        for name, target in OFFERS[slot].items():
            command = COMMAND.match(target)
            assert command is not None, target
            offered[command[1]].add(f"`{prefix}{name}`")
    named = {name: set(row[3].split(", ")) - {""} for name, row in features().items()}
    assert named == {name: offered[name] for name in named}
    assert set(offered) <= set(named)


def test_the_rows_are_those_that_are_checked() -> None:
    block = re.search(r"^```\n(api \| [^\n]*\n.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    layers = re.search(r"^layers = \[(.*?)\]", PROJECT, re.DOTALL | re.MULTILINE)
    assert block is not None
    assert layers is not None
    assert rows(block[1]) == rows("\n".join(re.findall(r'"([^"]+)"', layers[1])))


def test_features_import_the_others_that_are_declared() -> None:
    declared = set(
        re.findall(r'"torchscale\.features\.(\w+)\.\*\* -> torchscale\.features\.(\w+)', PROJECT)
    )
    assert declared
    assert {(name, row[1]) for name, row in features().items() if row[1]} == declared
