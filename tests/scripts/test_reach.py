"""What commands reach, of a package that is small enough to count by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

MODULES = {
    "cli/runs.py": "def runs() -> None:\n    from torchscale.read.runs import listed\n\n    listed()\n",
    "cli/output.py": "WIDTH = 80\n",
    "read/runs.py": '"""Runs."""\n\nimport json\n\n# a comment\nNAMES = json.loads(\n    "[]"\n)\n',
    "features/watch/cli/watch.py": "from torchscale.read.runs import NAMES\n\nwatched = NAMES\n",
    "plan/kinds/__init__.py": "",
    "plan/kinds/training.py": "a = 1\nb = 2\n",
    "worker/watch/collector.py": "d = 4\n",
    "plan/expand.py": "import torchscale.plan.kinds\n\nc = 3\n",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return importlib.import_module("reach")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "torchscale"
    for path, text in MODULES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        for parent in (root / path).relative_to(root).parents:
            (root / parent / "__init__.py").touch()
        (root / path).write_text(text)
    return root


def test_what_commands_reach(script: ModuleType, package: Path) -> None:
    rows = dict(script.reach_rows(script.read_sources(package)))
    assert rows["runs"] == 2 + 3  # no import, no docstring, no comment, no blank line
    assert rows["watch"] == 1 + 3
    assert rows["feature watch"] == 1 + 1  # with what it runs in ranks
    assert rows["core"] == rows["package"] - 2
    assert "output" not in rows


def test_modules_found_by_name_are_reached(script: ModuleType, package: Path) -> None:
    sources = script.read_sources(package)
    assert sources.lines(sources.reached(["torchscale.plan.expand"])) == 3


def test_the_core_imports_no_feature(script: ModuleType, package: Path) -> None:
    assert script.inward(script.read_sources(package)) == []
    (package / "read" / "runs.py").write_text("import torchscale.features.watch.cli.watch\n")
    assert script.inward(script.read_sources(package)) == [
        "torchscale.read.runs imports torchscale.features.watch.cli.watch"
    ]


def test_an_import_is_weighed_by_what_falls_away(script: ModuleType, package: Path) -> None:
    (costliest, *_) = script.costliest(script.read_sources(package), "runs")
    assert costliest == (3, "torchscale.cli.runs imports torchscale.read.runs")
