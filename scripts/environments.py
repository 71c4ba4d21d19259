"""Environments of Python in which a part of the tests runs, with other versions than those of .venv.

Used by ``pythons.py`` and ``torches.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("hypothesis", "jsonschema", "junitparser", "pytest", "pytest-timeout", "pytest-xdist")
"""Of the extra ``dev``."""
_MOST_LINES = 60
"""Of what failing tests printed."""


def project() -> dict[str, object]:
    """The table ``project`` of pyproject.toml."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(content["project"])


def requirements(table: dict[str, object]) -> list[str]:
    """What the core and its tests need.

    Args:
        table: As of :func:`project`.
    """
    core, extras = table["dependencies"], table["optional-dependencies"]
    if not isinstance(core, list) or not isinstance(extras, dict):
        raise TypeError(f"expected a list and a table, found {type(core)} and {type(extras)}")
    tools = [line for line in extras["dev"] if re.split(r"[^\w-]", line)[0] in TOOLS]
    return [*core, *tools, "tomli; python_version < '3.11'"]


def environment(
    python: Path, directory: Path, needed: Sequence[str], options: Sequence[str], seconds: float
) -> Path:
    """The interpreter of an environment with ``needed``; one that is complete is taken as it is.

    Args:
        python: That makes it.
        directory: Where it is kept.
        needed: Requirements as pip takes them.
        options: Of pip.
        seconds: For each of pip's and venv's runs.
    """
    inside, stamp = directory / "bin" / "python", directory / ".installed"
    wanted = "\n".join([str(python), *needed])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return inside
    shutil.rmtree(directory, ignore_errors=True)
    run([str(python), "-m", "venv", str(directory)], seconds)
    quiet = ("--quiet", "--no-compile", "--disable-pip-version-check")
    run([str(inside), "-m", "pip", "install", *quiet, *options, *needed], seconds)
    stamp.write_text(wanted, encoding="utf-8")
    return inside


def run_tests(inside: Path, arguments: Sequence[str], log: Path, seconds: float) -> tuple[int, str]:
    """Exit code and last line of pytest's run by this interpreter, or its last lines where a test
    failed, be it once; all of them go to ``log``."""
    script = str(ROOT / "scripts" / "once_more.py")
    command = [str(inside), script, "-q", "-p", "no:cacheprovider", *arguments]
    done = run(command, seconds, check=False)
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = done.stdout.splitlines()
    failed = done.returncode != 0 or any(line.startswith("FLAKY ") for line in lines)
    return done.returncode, "\n".join(lines[-_MOST_LINES:] if failed else lines[-1:])


def run(
    command: Sequence[str], seconds: float, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout, without variables of this Python and its pytest."""
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
