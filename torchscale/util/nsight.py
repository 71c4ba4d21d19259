"""How an installation of Nsight Systems is laid out, and whether its parts can run. Imports the
standard library alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_IMPORTER_SECONDS = 20.0
"""It answers in 0.02 s; from a cold network file system a program of this size takes seconds."""
_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: (.*)")


def installation_of(nsys: Path) -> Path | None:
    """The directory of the installation that a program ``nsys`` is of; ``None`` where its layout is
    not known.

    Installations hold ``target-linux-x64/nsys``, often ``bin/nsys`` too, and
    ``host-linux-x64/QdstrmImporter``. Partial ones lack the latter, or libraries that it needs.
    """
    program = nsys.resolve()
    return next(
        (parent for parent in program.parents[1:3] if any(parent.glob("target-linux*"))), None
    )


def importer_problem(installation: Path) -> str | None:
    """Why the importer, which makes a report of what was recorded, cannot run; ``None`` where it
    can."""
    importer = importer_of(installation)
    if importer is None:
        return "its importer is not installed"
    return _start_problem(importer)


def importer_of(installation: Path) -> Path | None:
    """The program that makes a report of what was recorded; ``None`` where it is not installed."""
    return next(iter(sorted(installation.glob("host-linux*/QdstrmImporter"))), None)


def _start_problem(importer: Path) -> str | None:
    try:
        done = subprocess.run(
            [importer, "--version"],
            capture_output=True,
            text=True,
            timeout=_IMPORTER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its importer did not answer within {_IMPORTER_SECONDS:g} s"
    except OSError as error:
        return f"its importer cannot be started: {error.strerror or error}"
    if done.returncode == 0:
        return None
    missing = _MISSING_LIBRARY.search(done.stderr)
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    said = f"exit code {done.returncode}"
    if missing is not None:
        said = missing[1]
    elif lines:
        said = lines[-1]
    return f"its importer cannot be started: {said[:200]}"
