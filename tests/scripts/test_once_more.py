"""Tests that fail run once more where CI asks for it, and nothing else is passed over: by real runs
of pytest on small files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "once_more.py"
PASSES = "def test_it() -> None: pass"
FAILS = "def test_it() -> None: assert False, 'always'"
ONCE = """
from pathlib import Path
import pytest
SEEN = Path(__file__).with_suffix(".seen")
def fails_once():
    if not SEEN.exists():
        SEEN.touch()
        raise AssertionError("once")
"""
FLAKY = ONCE + "def test_it(): fails_once()"
IN_SETUP = (
    ONCE
    + """
@pytest.fixture
def made(): fails_once()
def test_it(made): pass
"""
)
IN_TEARDOWN = (
    ONCE
    + """
@pytest.fixture
def made():
    yield
    fails_once()
def test_it(made): pass
"""
)
ODD_NAME = (
    ONCE
    + """
@pytest.mark.parametrize("name", ["a b::c/d [e] \\n"])
def test_it(name): fails_once()
"""
)
CRASHES_ONCE = (
    ONCE
    + """
def test_it():
    try:
        fails_once()
    except AssertionError:
        import os
        os._exit(7)
"""
)
NOT_COLLECTED = "import nothing_of_this_name"
NOT_COLLECTED_ONCE = ONCE + "fails_once()" + chr(10) + PASSES
MANY = """
import pytest
@pytest.mark.parametrize("number", range(11))
def test_it(number): assert False
"""


def run(
    directory: Path, files: dict[str, str], *options: str, asked: bool = True
) -> tuple[int, str, list[str]]:
    """Exit code, what is printed, and the lines of what passed alone."""
    flaky = directory / "flaky.txt"
    flaky.touch()
    (directory / "pytest.ini").write_text("[pytest]")
    for name, content in files.items():
        (directory / f"test_{name}.py").write_text(content)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    kept.pop("TORCHSCALE_ONCE_MORE", None)
    asks = {"TORCHSCALE_ONCE_MORE": str(flaky)} if asked else {}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "-q", *options],
        cwd=directory,
        env={**kept, **asks},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, flaky.read_text().splitlines()


@pytest.mark.parametrize(
    ("content", "options"),
    [(FLAKY, ("-n", "2")), (IN_SETUP, ()), (IN_TEARDOWN, ()), (ODD_NAME, ("-n", "1"))],
)
def test_what_fails_once_and_passes_alone_fails_nothing_and_is_listed(
    tmp_path: Path, content: str, options: tuple[str, ...]
) -> None:
    status, text, flaky = run(tmp_path, {"flaky": content, "sound": PASSES}, *options)
    assert status == 0, text
    (line,) = flaky
    assert line.startswith("test_flaky.py::test_it")
    assert "FLAKY test_flaky.py::test_it" in text


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    status, text, flaky = run(tmp_path, {"flaky": FLAKY, "broken": FAILS}, "-n", "2")
    assert status == 1
    assert "FAILED TWICE test_broken.py::test_it" in text
    assert len(flaky) == 1


@pytest.mark.parametrize(
    ("content", "options"), [(NOT_COLLECTED, ()), (NOT_COLLECTED_ONCE, ("-n", "2"))]
)
def test_a_file_that_is_not_collected_fails_the_run(
    tmp_path: Path, content: str, options: tuple[str, ...]
) -> None:
    both = {"absent": content, "flaky": FLAKY}
    status, _, flaky = run(tmp_path, both, "--continue-on-collection-errors", *options)
    assert status != 0
    assert flaky == []


def test_a_worker_that_crashes_fails_the_run(tmp_path: Path) -> None:
    status, text, flaky = run(tmp_path, {"crash": CRASHES_ONCE, "sound": PASSES}, "-n", "2")
    assert status == 1
    assert "not run once more: a worker" in text
    assert flaky == []


def test_more_failures_than_chance_has_fail_the_run(tmp_path: Path) -> None:
    status, text, _ = run(tmp_path, {"many": MANY})
    assert status == 1
    assert "not run once more: 11 tests failed" in text


def test_without_ci_nothing_runs_twice(tmp_path: Path) -> None:
    status, text, flaky = run(tmp_path, {"flaky": FLAKY}, asked=False)
    assert (status, flaky) == (1, [])
    assert "once more" not in text


def test_no_test_at_all_is_no_pass(tmp_path: Path) -> None:
    assert run(tmp_path, {}, "--strict-markers")[0] == pytest.ExitCode.NO_TESTS_COLLECTED
