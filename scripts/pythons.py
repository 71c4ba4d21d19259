"""Run tests of the core on the oldest and the newest further Python of this machine.

::

    python scripts/pythons.py            # make pythons; environments are kept in build/pythons
    python scripts/pythons.py 3.12       # these versions alone

Further means: of the versions in pyproject.toml, other than the one that runs this. Interpreters
are those of pyenv and those on PATH. The core needs no torch, so an environment takes seconds.
Tests run on all versions at the same time; logs are in build/pythons. Where there is no further
Python, nothing runs and all is well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "build" / "pythons"
TESTS = (
    "tests/cli/test_history.py",
    "tests/cli/test_options.py",
    "tests/config",
    "tests/hang",
    "tests/history",
    "tests/launch",
    "tests/nodes",
    "tests/plan",
    "tests/schema",
    "tests/store",
    "tests/submit",
    "tests/traces",
    "tests/util",
)
"""What reads files, parses, starts processes and keeps databases: there versions of Python differ.
Formulas and reports, which take most of the time, do not."""
LEFT_OUT = (
    "--ignore=tests/schema/cells/test_kinds.py",  # needs torch
    "--ignore=tests/util/test_extras.py",  # needs extras
    "--deselect=tests/cli/test_history.py::test_the_page",
    "--ignore-glob=*_fuzz.py",  # many examples of what other tests do
    "--deselect=tests/config/test_load.py::test_any_bytes_give_an_experiment_or_a_clear_error",
    "--deselect=tests/config/test_load.py::test_any_structure_gives_an_experiment_or_a_clear_error",
    "--deselect=tests/config/test_load.py::test_what_config_show_prints_loads_to_the_same",
    "--deselect=tests/hang/test_explain.py::test_any_evidence_gives_a_verdict",
    "--deselect=tests/hang/test_flight_recorder.py::test_a_dump_of_many_groups_is_judged_in_seconds",
    "--ignore=tests/nodes/test_pairwise.py",  # arithmetic
    "--ignore=tests/store/test_damaged_files.py",
    "--ignore=tests/traces/test_soundness.py",
)
TOOLS = ("hypothesis", "jsonschema", "junitparser", "pytest", "pytest-timeout", "pytest-xdist")
"""Of the extra ``dev``."""
_INSTALL_SECONDS = 300
_TEST_SECONDS = 480
_ASK_SECONDS = 10


def interpreters(minors: Sequence[int], path: str, pyenv: Path) -> dict[int, Path]:
    """Minor version → an interpreter of Python 3 that runs and can make environments.

    Args:
        minors: Versions to look for.
        path: Directories, as in ``PATH``.
        pyenv: Its directory; need not exist.
    """
    found = {}
    for minor in minors:
        versions = sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3"))
        on_path = shutil.which(f"python3.{minor}", path=path)
        candidates = [*versions, *([Path(on_path)] if on_path is not None else [])]
        usable = next((python for python in candidates if _minor(python) == minor), None)
        if usable is not None:
            found[minor] = usable
    return found


def ends(minors: Sequence[int]) -> list[int]:
    """The oldest and the newest; one where they are the same."""
    return sorted({min(minors), max(minors)}) if minors else []


def requirements(project: dict[str, object]) -> list[str]:
    """What the core and its tests need.

    Args:
        project: The table ``project`` of pyproject.toml.
    """
    core, extras = project["dependencies"], project["optional-dependencies"]
    if not isinstance(core, list) or not isinstance(extras, dict):
        raise TypeError(f"expected a list and a table, found {type(core)} and {type(extras)}")
    tools = [line for line in extras["dev"] if re.split(r"[^\w-]", line)[0] in TOOLS]
    return [*core, *tools, "tomli; python_version < '3.11'"]


def environment(python: Path, directory: Path, needed: Sequence[str]) -> Path:
    """The interpreter of an environment with ``needed``; one that is complete is taken as it is."""
    inside, stamp = directory / "bin" / "python", directory / ".installed"
    wanted = "\n".join([str(python), *needed])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return inside
    shutil.rmtree(directory, ignore_errors=True)
    _run([str(python), "-m", "venv", str(directory)], _INSTALL_SECONDS)
    options = [
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    _run([str(inside), "-m", "pip", "install", *options, *needed], _INSTALL_SECONDS)
    stamp.write_text(wanted, encoding="utf-8")
    return inside


def tests_on(minor: int, python: Path, needed: Sequence[str]) -> tuple[int, str]:
    """Exit code and the last lines of the tests on this interpreter."""
    try:
        inside = environment(python, ENVIRONMENTS / f"3.{minor}", needed)
        options = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not quiet"]
        done = _run(
            [str(inside), "-m", "pytest", *options, *LEFT_OUT, *TESTS], _TEST_SECONDS, check=False
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return 1, f"{error}\n{error.stdout or ''}\n{error.stderr or ''}"
    (ENVIRONMENTS / f"3.{minor}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    shown = (
        done.stdout.splitlines()[-1:] if done.returncode == 0 else done.stdout.splitlines()[-60:]
    )
    return done.returncode, "\n".join(shown)


def _minor(python: Path) -> int | None:
    """``None`` for what does not run, as shims of pyenv whose version is not chosen."""
    command = [str(python), "-c", "import ensurepip, sys; print(sys.version_info.minor)"]
    try:
        done = _run(command, _ASK_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return int(done.stdout)


def _run(
    command: Sequence[str], seconds: float, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "COV"))
    }
    return subprocess.run(
        command,
        cwd=ROOT,
        env=variables,
        check=check,
        timeout=seconds,
        capture_output=True,
        text=True,
    )


def main() -> int:
    """Test on the versions that are named, else on the oldest and the newest further one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = [
        int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", " ".join(project["classifiers"]))
    ]
    asked = [int(version.partition(".")[2]) for version in sys.argv[1:]]
    further = asked or [minor for minor in supported if minor != sys.version_info.minor]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = interpreters(further, os.environ.get("PATH", ""), pyenv)
    if not found:
        sys.stdout.write(
            f"no further Python among {', '.join(f'3.{minor}' for minor in further)}: nothing to "
            "test\n"
        )
        return 0
    chosen = asked or ends(list(found))
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    needed = requirements(project)
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda minor: tests_on(minor, found[minor], needed), chosen))
    for minor, (code, text) in zip(chosen, ended, strict=True):
        sys.stdout.write(f"Python 3.{minor}: {'passed' if code == 0 else 'FAILED'}\n{text}\n")
    return max(code for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main())
