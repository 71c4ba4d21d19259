"""What is changed in a module, and that a change is noticed by a test or listed."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "mutants.py"


script: Any = importlib.import_module("mutants")


@pytest.mark.parametrize("place", [*script.MODULES, *script.LEFT_OUT])
def test_what_is_named_is_there(place: str) -> None:
    assert (ROOT / place.partition("::")[0]).exists(), "nothing of it would be tried, or left out"


def changed(source: str) -> list[str]:
    """The module with each of its changes."""
    found = script.sample(source, 0, "")
    return [ast.unparse(script.mutated(source, mutant.index)) for mutant in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b"]),
        ("a == b is c", ["a != b is c", "a == b is not c"]),
        ("a + b * c", ["a - b * c", "a + b / c"]),
        ("a and b", ["a or b", "b", "a"]),
        ("not a", ["a"]),
        ("x = 3", ["x = 4", "x = 2"]),
        ("x = True", ["x = False"]),
        ("min(a, key=b)", ["max(a, key=b)"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("if a:\n    b", ["if False:\n    b"]),
        ("[a for a in b if a]", ["[a for a in b]"]),
    ],
)
def test_one_thing_is_changed_at_a_time(source: str, expected: list[str]) -> None:
    assert changed(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "x: Literal[1] = y",
        "def f(x: Literal[1]) -> Literal[2]:\n    pass",
        "@dataclass(frozen=True)\nclass A:\n    pass",
        "assert a < b",
        "if TYPE_CHECKING:\n    x = 1",
        "zip(a, b, strict=True)",
        '"""A text."""',
    ],
)
def test_what_is_there_for_the_type_checker_or_the_reader_stays(source: str) -> None:
    assert changed(source) == []


def test_a_sample_stays_the_same_and_is_part_of_a_larger_one() -> None:
    """So that a survivor can be looked for again once there is a test."""
    source = "\n".join(f"x{number} = a{number} < b" for number in range(30))
    five, ten = (script.sample(source, count, "module.py") for count in (5, 10))
    assert len(five) == 5
    assert set(five) < set(ten)
    assert five == script.sample(source, 5, "module.py")
    assert [mutant.line for mutant in five] == sorted(mutant.line for mutant in five)
    assert five[0].change == f"a{five[0].line - 1} < b → a{five[0].line - 1} <= b"


def test_of_a_long_line_the_part_that_changes_is_shown() -> None:
    (change,) = script.sample(f"{'a' * 100} < b", 0, "")
    assert change.change == f"…{'a' * 13} < b → …{'a' * 13} <= b"


def test_the_tests_of_the_room_follow_those_of_the_module() -> None:
    assert script.room_tests(ROOT / "torchscale/features/watch/hang/explain.py") == [
        "tests/features/watch/hang/test_explain.py",
        "tests/features/watch/hang",
    ]
    assert script.room_tests(ROOT / "torchscale/util/redaction.py") == [
        "tests/util/test_redaction.py"
    ]


def test_the_listed_modules_and_tests_are_there() -> None:
    """Otherwise a renamed file would silently be left out."""
    for name in (*script.MODULES, *(test.partition("::")[0] for test in script.LEFT_OUT)):
        assert (ROOT / name).exists(), name


@pytest.mark.slow
def test_changes_of_a_module_are_tried_and_counted() -> None:
    """Also that its tests pass without a change in the way they are run: else every change would
    seem to be noticed."""
    command = [
        sys.executable,
        str(SCRIPT),
        "--sample",
        "3",
        "--module",
        "torchscale/features/decide/tune/gains.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    first, *survivors, last = done.stdout.splitlines()
    noticed = 3 - len(survivors)
    assert first == f"torchscale/features/decide/tune/gains.py: {noticed} of 3 noticed"
    assert last == f"{noticed} of 3 changes noticed ({noticed / 3:.0%})"
    assert noticed >= 1
