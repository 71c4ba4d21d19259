"""Figures of the source code, of a package that is small enough to count by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''"""A module."""


def chosen(a: int, b: int) -> int:
    """The larger one."""
    # a comment
    return a if a > b else (b if b > 0 else 0)


def counted(values: list[int]) -> int:
    """How many are large."""
    if values and values[0]:
        return sum(value > 1 for value in values if value)
    return len("______________________________________________________________________________________")
'''


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return importlib.import_module("code_figures")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in (
        "analysis/change_points.py",
        "features/watch/hang/explain.py",
        "features/compare/history/file.py",
    ):
        module = tmp_path / "torchscale" / path
        module.parent.mkdir(parents=True)
        module.write_text(SOURCE)
    (tmp_path / "pyproject.toml").write_text(
        'layers = [\n  "history",\n  "hang",\n  "analysis",\n]\n'
    )
    return tmp_path


def test_what_is_counted(script: ModuleType, checkout: Path) -> None:
    figures = dict(script.figures(checkout))
    assert figures["modules"] == "3"
    assert figures["code lines"] == "18"  # no docstring, no comment, no blank line
    assert figures["conditional expressions per 1,000 code lines"] == f"{4 / 12 * 1000:.1f}"
    assert figures["… inside another one"] == f"{2 / 12 * 1000:.2f}"
    assert figures["code lines over 100 columns"] == f"{2 / 12:.2%}".replace("%", " %")
    assert figures["import rows"] == "3"


def test_a_feature_is_found_by_its_own_names(script: ModuleType, checkout: Path) -> None:
    figures = dict(script.figures(checkout))
    assert figures["rooms of hang"] == "1 (features/watch)"  # and not of change_points
    assert figures["rooms of history"] == "1 (features/compare)"


def test_complexity_counts_decisions(script: ModuleType, checkout: Path) -> None:
    (module, *_) = script.read_modules(checkout / "torchscale")
    counts = {one.name: script.complexity(one) for one in script.functions(module)}
    assert counts == {"chosen": 3, "counted": 5}


def test_a_namesake_is_no_figure_of_a_cell(script: ModuleType, checkout: Path) -> None:
    for path in ("analysis/summary.py", "features/decide/tune/outcome.py", "report/table.py"):
        module = checkout / "torchscale" / path
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("tokens_per_second = 1\n")
    assert dict(script.figures(checkout))["modules that name a cell's tokens_per_second"] == "2"


def test_long_signatures_are_named(script: ModuleType, checkout: Path) -> None:
    assert dict(script.figures(checkout))["signatures over 60 lines"] == "0"
    for name, count in (("fits", 58), ("long", 59)):
        options = "".join(f"    option_{number}: int,\n" for number in range(count))
        source = f'def {name}(\n{options}) -> None:\n    """A command."""\n'
        (checkout / "torchscale" / "analysis" / f"{name}.py").write_text(source)
    assert dict(script.figures(checkout))["signatures over 60 lines"] == "1 long 61"


def test_long_modules_are_counted(script: ModuleType, checkout: Path) -> None:
    assert dict(script.figures(checkout))["modules over 300 lines"] == "0"
    for name, count in (("fits", 300), ("long", 301)):  # code and all
        (checkout / "torchscale" / "analysis" / f"{name}.py").write_text("# a comment\n" * count)
    assert dict(script.figures(checkout))["modules over 300 lines"] == "1"


def test_a_class_name_for_two_things_is_named(script: ModuleType, checkout: Path) -> None:
    assert dict(script.figures(checkout))["class names for two things"] == "0"
    for name in ("first", "second"):
        source = "class Cause:\n    pass\n\n\nclass _Own:\n    pass\n"
        (checkout / "torchscale" / "analysis" / f"{name}.py").write_text(source)
    assert dict(script.figures(checkout))["class names for two things"] == "1 Cause"


def test_what_passes_a_bound_needs_a_reason_and_no_other_is_listed(
    script: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TALL", {"analysis/listed.py": "one table", "gone.py": "it was"})
    monkeypatch.setattr(script, "TWICE", {})
    for name in ("listed", "long"):
        source = f"class {name.title()}:\n    pass\n" + "# a comment\n" * 300
        (checkout / "torchscale" / "analysis" / f"{name}.py").write_text(source)
    assert list(script.problems(checkout)) == [
        "analysis/long.py has over 300 lines",
        "gone.py is listed without need",
    ]
