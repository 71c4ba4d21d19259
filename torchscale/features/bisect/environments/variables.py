"""Variables of commands in a built environment, and whether a program runs in its Python."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.util.git import without_repository
from torchscale.util.processes.subprocesses import inherited_environment

_LINE_CHARACTERS = 300
"""Of a script's first line, which are read."""


def variables_of(
    directory: Path | None, variables: Sequence[tuple[str, str]], *, in_clone: bool = False
) -> dict[str, str]:
    """The environment variables of a command in a built environment, or in the user's own.
    ``in_clone``: it runs in another repository than that which variables of git may name."""
    known: Mapping[str, str] = inherited_environment()
    if in_clone:
        known = without_repository(known)
    if directory is not None:
        known = {
            **plain_environment(known),
            "PATH": os.pathsep.join([str(directory / "bin"), known.get("PATH", os.defpath)]),
            "VIRTUAL_ENV": str(directory),
            "PYTHONNOUSERSITE": "1",
        }
    return {**known, **dict(variables)}


def foreign_python(program: str, directory: Path) -> str:
    """Why a program would run in another Python than that of a built environment; empty where it
    does not, or is no Python program."""
    path = shutil.which(program, path=variables_of(directory, ())["PATH"])
    if path is None or Path(path).absolute().is_relative_to(directory):
        return ""
    name = Path(path).name
    if not name.startswith("python") and not _is_script_of_python(Path(path)):
        return ""
    return (
        f"cannot be measured by {program}: {path} runs in another Python; write {name} and "
        "have its package among the requirements (--with)"
    )


def _is_script_of_python(path: Path) -> bool:
    """Whether its first line starts Python."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LINE_CHARACTERS)
    except OSError:
        return False
    return line.startswith(b"#!") and b"python" in line


def plain_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Without what brings packages of the user's own environment into another one."""
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    return {name: value for name, value in variables.items() if name not in own}
