"""Starts Python for modules of ours, and finds programs that were installed with us."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_RUN = (
    "import runpy, sys; del sys.path[0]; runpy.run_module({!r}, run_name='__main__', "
    "alter_sys=True)"
)


def module_command(module: str, *arguments: str) -> list[str]:
    """argv that runs ``module`` in this interpreter without the working directory among the places
    that modules come from: a directory of results may hold a ``torch.py``. (``python -m`` looks
    there first.)"""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-c", _RUN.format(module), *arguments]


def script_command(script: Path, *arguments: str) -> list[str]:
    """argv that runs a script which needs the standard library alone, without what the environment
    adds to this interpreter."""
    return [sys.executable, "-I", "-S", str(script), *arguments]


def code_command(code: str, *arguments: str) -> list[str]:
    """argv that runs ``code``, which needs the standard library alone, as :func:`script_command`
    runs a script."""
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def installed_program(name: str) -> str | None:
    """Path of a program of this environment, which need not be on PATH, else of the machine;
    ``None`` for neither."""
    beside = Path(sys.executable).with_name(name)
    if beside.exists():
        return str(beside)
    return shutil.which(name)


def interpreter() -> str:
    """Path of this Python: new environments get one of its version."""
    return sys.executable
