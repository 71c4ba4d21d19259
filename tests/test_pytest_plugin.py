"""The pytest plugin, loaded through its entry point by pytest in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.campaign import cases
from tests.integration.conftest import FAST
from tests.test_action import faster
from tests.test_core_install import PROJECT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SUM = """
def test_sum(torchscale):
    torchscale(lambda: sum(range(2000)), rounds=8, round_seconds=0.004)
"""
TESTS = (
    SUM
    + SUM.replace("test_sum", "test_slower")
    + SUM.replace("test_sum", "test_new")
    + """
def test_twice(torchscale):
    torchscale(int, name="a", rounds=3, round_seconds=0.001)
    torchscale(int, name="b", rounds=3, round_seconds=0.001)
"""
)


ACCEPT = "--torchscale-accept-contended"
"""Other tests run beside these."""


class Project:
    """A directory with tests of a user, and an environment in which torchscale is installed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.baseline = directory / "baselines" / "pytest.json"
        installed = directory / "site" / "torchscale_bench-1.dist-info"
        installed.mkdir(parents=True)
        (installed / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: torchscale-bench\nVersion: 1\n"
        )
        entries = [
            f"{name} = {module}" for name, module in PROJECT["entry-points"]["pytest11"].items()
        ]
        (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *entries, ""]))
        (directory / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
        (directory / "tests").mkdir()

    def write(self, test: str) -> None:
        (self.directory / "tests" / "test_speed.py").write_text(test)

    def pytest(
        self, *arguments: str, python: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "COV"))
        }
        return subprocess.run(
            [sys.executable, *python, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=self.directory,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join([str(self.directory / "site"), str(ROOT)]),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_regression_fails_and_equal_speed_passes(project: Project) -> None:
    project.write(TESTS)
    written = project.pytest("--torchscale-update-baseline", "tests/test_speed.py", ACCEPT)
    assert written.returncode == 0, written.stdout
    content = json.loads(project.baseline.read_text())
    tests = content["tests"]
    names = [name.partition("::")[2] for name in tests]
    assert names == ["test_new", "test_slower", "test_sum", "test_twice[a]", "test_twice[b]"]
    (before,) = tests["tests/test_speed.py::test_slower"]
    before["seconds"] = [seconds / 20 for seconds in before["seconds"]]
    (same,) = tests["tests/test_speed.py::test_sum"]
    same["seconds"] = [
        seconds * 3 for seconds in same["seconds"]
    ]  # whatever else this machine does meanwhile
    del tests["tests/test_speed.py::test_new"]
    project.baseline.write_text(json.dumps(content))

    done = project.pytest("-rA", "-k", "not twice", ACCEPT)
    assert done.returncode == 1
    assert "PASSED tests/test_speed.py::test_sum" in done.stdout
    assert "baseline of 1 session: noise between sessions is unknown" in done.stdout
    assert "slower than the baseline, measured twice: time per call" in done.stdout
    assert (
        "has no baseline of tests/test_speed.py::test_new: run pytest --torchscale-update-baseline"
        in done.stdout
    )
    assert "2 failed, 1 passed" in done.stdout


def test_a_contended_measurement_is_neither_written_nor_judged(project: Project) -> None:
    """A process beside it on the only core that the test may use."""
    project.write(
        """
import os, subprocess, sys, pytest

@pytest.fixture(autouse=True)
def busy():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    process.kill()
    process.wait(timeout=30)
    os.sched_setaffinity(0, cores)

def test_sum(torchscale):
    torchscale(lambda: sum(range(2000)), rounds=20, round_seconds=0.02)
"""
    )
    refused = project.pytest("--torchscale-update-baseline")
    assert refused.returncode == 1
    assert "not written, contended: it waited for a core" in refused.stdout
    assert not project.baseline.exists()
    assert project.pytest("--torchscale-update-baseline", ACCEPT).returncode == 0
    content = json.loads(project.baseline.read_text())
    (session,) = content["tests"]["tests/test_speed.py::test_sum"]
    session["seconds"] = [seconds / 20 for seconds in session["seconds"]]
    project.baseline.write_text(json.dumps(content))
    skipped = project.pytest("-rs")
    assert skipped.returncode == 0, skipped.stdout
    assert "unclear, contended: it waited for a core" in skipped.stdout


def test_sessions_are_added_once_and_other_tests_keep_theirs(project: Project) -> None:
    """Once also where a fork returns from a test, and ends the session as its parent does."""
    project.write(
        SUM
        + """
import os

def test_fork():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
"""
    )
    assert project.pytest("--torchscale-add-to-baseline", "tests", ACCEPT).returncode == 0
    content = json.loads(project.baseline.read_text())
    (first,) = content["tests"]["tests/test_speed.py::test_sum"]
    content["tests"]["tests/test_other.py::test_kept"] = [first]
    project.baseline.write_text(json.dumps(content))
    assert project.pytest("--torchscale-add-to-baseline", ACCEPT).returncode == 0
    tests = json.loads(project.baseline.read_text())["tests"]
    assert tests["tests/test_other.py::test_kept"] == [first]
    assert [len(one["seconds"]) for one in tests["tests/test_speed.py::test_sum"]] == [8, 8]


def test_wrong_input_is_one_line(project: Project) -> None:
    project.write(
        """
import pytest

@pytest.mark.parametrize("settings", [{"rounds": 1}, {"threshold": "much"}, {"name": "x"}])
def test_sum(torchscale, settings):
    torchscale(int, **settings)

def test_config(torchscale):
    torchscale.config("absent.yaml", baseline="main")
"""
    )
    project.baseline.parent.mkdir()
    project.baseline.write_text("{")
    done = project.pytest()
    assert "rounds: 1 is below 3" in done.stdout
    assert "threshold much: expected a share such as 10% or 0.1" in done.stdout
    assert "pytest.json: not a baseline of the pytest plugin" in done.stdout
    assert "absent.yaml" in done.stdout
    assert "4 failed" in done.stdout
    assert "Traceback" not in done.stdout


def test_help_is_printed(project: Project) -> None:
    done = project.pytest("--help")
    assert done.returncode == 0, done.stderr
    assert "Smaller changes pass: 10% or 0.1." in done.stdout


def test_arguments_that_are_none_are_one_line(project: Project) -> None:
    project.write(
        """
import pytest

@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 2.5},
        {"rounds": 10**9},
        {"round_seconds": float("inf")},
        {"round_seconds": "1"},
        {"synchronize": 3},
        {"function": 3},
    ],
)
def test_sum(torchscale, settings):
    torchscale(**{"function": int, **settings})
"""
    )
    done = project.pytest("--torchscale-update-baseline", ACCEPT)
    assert "rounds: expected a whole number, got 2.5" in done.stdout
    assert "rounds: 1000000000 is above 10,000" in done.stdout
    assert "round_seconds: expected a number above 0 and up to 10, got inf" in done.stdout
    assert "round_seconds: expected a number above 0 and up to 10, got '1'" in done.stdout
    assert "synchronize: expected a function of no arguments, got 3" in done.stdout
    assert "expected a function of no arguments, got 3" in done.stdout
    assert "6 failed" in done.stdout
    assert "timing.py" not in done.stdout
    assert "During handling" not in done.stdout


def test_names_that_control_a_terminal_are_shown_and_kept_with_escapes(project: Project) -> None:
    project.write(
        """
def test_sum(torchscale):
    for name in ("\\x1b[31mred", "a\\nb", "\\udcff"):
        torchscale(int, name=name, rounds=3, round_seconds=0.001, threshold=0.99)
"""
    )
    written = project.pytest("--torchscale-update-baseline", ACCEPT)
    assert written.returncode == 0, written.stdout
    assert "\x1b" not in written.stdout
    assert r"test_sum[a\nb]: " in written.stdout
    done = project.pytest(ACCEPT)
    assert "has no baseline" not in done.stdout


@pytest.mark.parametrize(
    ("make", "said"),
    cases(
        [(lambda place: place.parent.write_text("a file"), "cannot create")],
        [
            (
                lambda place: (place.parent.mkdir(), place.symlink_to(place.name)),
                "Too many levels of symbolic links",
            )
        ],
    ),
)
def test_a_baseline_that_cannot_be_written_fails_the_session_after_its_summary(
    project: Project, make: Callable[[Path], object], said: str
) -> None:
    project.write(SUM + "\ndef test_wrong():\n    assert 1 == 2\n")
    make(project.baseline)
    done = project.pytest("--torchscale-update-baseline", ACCEPT)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "assert 1 == 2" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "ERROR: no baseline was written: " in done.stdout
    assert said in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    compared = project.pytest()
    assert "not a baseline of the pytest plugin" in compared.stdout
    without_terminal = project.pytest("--torchscale-update-baseline", ACCEPT, "-p", "no:terminal")
    assert without_terminal.returncode == pytest.ExitCode.USAGE_ERROR


def test_a_config_is_not_measured_for_a_baseline_that_cannot_be(project: Project) -> None:
    project.write(
        """
import pytest

@pytest.mark.parametrize("name", ["../main", "x" * 300, "absent"])
def test_config(torchscale, name):
    torchscale.config("absent.yaml", baseline=name)
"""
    )
    done = project.pytest()
    assert "'../main' is no name for a baseline" in done.stdout
    assert "xxx' is no name for a baseline" in done.stdout
    assert "no baseline 'absent' in" in done.stdout
    assert "absent.yaml: No such file" not in done.stdout
    assert "During handling" not in done.stdout


def test_beside_other_workers_nothing_is_measured(project: Project) -> None:
    project.write(SUM)
    done = project.pytest("-n", "2", "-rs")
    assert done.returncode == 0, done.stdout
    assert "run with -n 0" in done.stdout
    refused = project.pytest("-n", "2", "--torchscale-update-baseline")
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "add -n 0" in refused.stderr
    elsewhere = project.pytest("--dist=load", "--tx", "2*popen", "--torchscale-update-baseline")
    assert elsewhere.returncode == pytest.ExitCode.USAGE_ERROR


def test_a_run_that_does_not_use_the_fixture_loads_nothing_of_ours(project: Project) -> None:
    """The root of the package alone is loaded, and none of its rooms."""
    project.write("import sys\n\ndef test_nothing():\n    print('loaded:', *sys.modules)\n")
    done = project.pytest("-s")
    assert done.returncode == 0, done.stdout
    (line,) = (line for line in done.stdout.splitlines() if "loaded:" in line)
    loaded = set(line.partition("loaded:")[2].split())
    ours = {name for name in loaded if name.partition(".")[0] == "torchscale"}
    assert ours == {
        "torchscale",
        "torchscale.pytest_plugin",
        "torchscale.pytest_plugin.measure",
        "torchscale.pytest_plugin.session",
        "torchscale.step_profiler",
        "torchscale.version",
        "torchscale.watching",
    }
    assert {"numpy", "pydantic", "torch", "typer"} & loaded == set()


def test_the_example_runs(project: Project, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "pytest")
    baseline = tmp_path / "speed.json"
    options = (
        "--rootdir",
        str(tmp_path),
        "-c",
        str(tmp_path / "pytest.ini"),
        "--torchscale-baseline",
        str(baseline),
    )
    done = project.pytest(example, "--torchscale-update-baseline", ACCEPT, *options)
    assert done.returncode == 0, done.stdout
    assert len(json.loads(baseline.read_text())["tests"]) == 3


@pytest.mark.campaign
def test_a_config_is_measured_and_compared(project: Project) -> None:
    config = yaml.safe_load((ROOT / "examples" / "action" / "ci.yaml").read_text())
    config["benchmark"] |= FAST
    (project.directory / "ci.yaml").write_text(yaml.safe_dump(config))
    project.write(
        "def test_training(torchscale):\n    torchscale.config('ci.yaml', baseline='main')\n"
    )
    written = project.pytest("--torchscale-update-baseline", ACCEPT)
    assert written.returncode == 0, written.stdout
    baseline = project.baseline.with_name("main.json")
    baseline.write_text(json.dumps(faster(json.loads(baseline.read_text()))))
    done = project.pytest()
    assert done.returncode == 1
    assert "against main" in done.stdout
