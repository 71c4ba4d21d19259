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

from environments import ROOT, environment, project, requirements, run, run_tests

ENVIRONMENTS = ROOT / "build" / "pythons"
TESTS = (
    "tests/features/compare/cli/test_history.py",
    "tests/cli/test_options.py",
    "tests/config",
    "tests/features/watch/hang",
    "tests/features/compare/history",
    "tests/launch",
    "tests/features/cluster/nodes",
    "tests/plan",
    "tests/schema",
    "tests/store",
    "tests/features/cluster/submit",
    "tests/features/trace/readers",
    "tests/util",
)
"""What reads files, parses, starts processes and keeps databases: there versions of Python differ.
Formulas and reports, which take most of the time, do not."""
LEFT_OUT = (
    "--ignore=tests/schema/cells/test_kinds.py",  # needs torch
    "--ignore=tests/util/test_extras.py",  # needs extras
    "--ignore=tests/store/storage",  # needs an extra
    "--deselect=tests/features/compare/cli/test_history.py::test_the_page",
    "--ignore-glob=*_fuzz.py",  # many examples of what other tests do
    "--deselect=tests/config/test_load.py::test_any_bytes_give_an_experiment_or_a_clear_error",
    "--deselect=tests/config/test_load.py::test_any_structure_gives_an_experiment_or_a_clear_error",
    "--deselect=tests/config/test_load.py::test_what_config_show_prints_loads_to_the_same",
    "--deselect=tests/features/watch/hang/test_explain.py::test_any_evidence_gives_a_verdict",
    "--deselect=tests/features/watch/hang/test_flight_recorder.py::test_a_dump_of_many_groups_is_judged_in_seconds",
    "--ignore=tests/features/validate/fleet/test_pairwise.py",  # arithmetic
    "--ignore=tests/store/test_damaged_files.py",
    "--ignore=tests/features/trace/readers/test_soundness.py",
)
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


def tests_on(minor: int, python: Path, needed: Sequence[str]) -> tuple[int, str]:
    """Exit code and the last lines of the tests on this interpreter."""
    pins = ("-c", str(ROOT / "constraints.txt"))
    arguments = ("-m", "not slow and not quiet", *LEFT_OUT, *TESTS)
    try:
        inside = environment(
            python, ENVIRONMENTS / f"3.{minor}", needed, pins, seconds=_INSTALL_SECONDS
        )
        return run_tests(inside, arguments, ENVIRONMENTS / f"3.{minor}.log", _TEST_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return 1, f"{error}\n{error.stdout or ''}\n{error.stderr or ''}"


def _minor(python: Path) -> int | None:
    """``None`` for what does not run, as shims of pyenv whose version is not chosen."""
    command = [str(python), "-c", "import ensurepip, sys; print(sys.version_info.minor)"]
    try:
        done = run(command, _ASK_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    return int(done.stdout)


def main() -> int:
    """Test on the versions that are named, else on the oldest and the newest further one."""
    table = project()
    classifiers = " ".join(map(str, table["classifiers"]))  # type: ignore[call-overload]
    supported = [int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", classifiers)]
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
    needed = requirements(table)
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda minor: tests_on(minor, found[minor], needed), chosen))
    for minor, (code, text) in zip(chosen, ended, strict=True):
        sys.stdout.write(f"Python 3.{minor}: {'passed' if code == 0 else 'FAILED'}\n{text}\n")
    return max(code for code, _ in ended)


if __name__ == "__main__":
    sys.exit(main())
