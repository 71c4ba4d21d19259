"""Requirements of an environment: lists and files, and the versions of a wheels directory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from torchscale.errors import UsageError
from torchscale.util.files import read_bounded

_LARGEST_FILE = 1 << 20
_NEXT = re.compile(r",(?=\s*[A-Za-z])")
"""A comma before a name: one before an operator (``torch>=2.9,<2.11``) belongs to its
requirement."""
_CONTINUED = re.compile(r"\\\n")


def read_requirements(side: str) -> tuple[str, ...]:
    """Requirements of a file, or of a list such as ``torch==2.9,numpy<2``: sorted, each once.

    Raises:
        UsageError: the file cannot be read, or an entry is no requirement.
    """
    path = Path(side)
    if path.is_file() or "/" in side or side.endswith(".txt"):
        return _parsed(_lines(path), str(path))
    return _parsed(_NEXT.split(side), side)


def name_of(requirement: str) -> str:
    """The package's name in its canonical form."""
    return canonicalize_name(Requirement(requirement).name)


def version_of(requirement: str) -> str:
    """``2.9`` of ``torch==2.9``; the whole specifier where it is another."""
    text = str(Requirement(requirement).specifier)
    return text.removeprefix("==") or "any version"


def versions_between(package: str, old: str, new: str, directories: Iterable[Path]) -> list[str]:
    """The versions of a package in wheels directories from ``old`` to ``new``, both included, in
    this order; empty where one of both is no version, or is not there."""
    try:
        first, last = Version(old), Version(new)
    except ValueError:
        return []
    found = {first, last}
    for directory in directories:
        for path in directory.glob("*.whl"):
            try:
                name, version, _, _ = parse_wheel_filename(path.name)
            except InvalidWheelFilename:
                continue
            if name == canonicalize_name(package):
                found.add(version)
    low, high = sorted((first, last))
    between = sorted(version for version in found if low <= version <= high)
    if first > last:
        between.reverse()
    return [str(version) for version in between]


def pinned(package: str, version: str) -> str:
    """``torch==2.9``.

    Raises:
        UsageError: it is no requirement.
    """
    return _parsed([f"{package}=={version}"], f"{package}={version}")[0]


def _lines(path: Path) -> list[str]:
    try:
        text = read_bounded(path, _LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: {getattr(error, 'strerror', None) or error}",
            hint="name a requirements file, a list such as torch==2.9,numpy==2.1, git:REV, or "
            "env:NAME=VALUE",
        ) from error
    lines = _CONTINUED.sub(" ", text).splitlines()
    return [line for line in (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines) if line]


def _parsed(entries: Sequence[str], origin: str) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for entry in entries:
        text = entry.strip()
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise UsageError(
                f"{origin}: {text!r} is no requirement",
                hint="write names with versions, such as torch==2.9; options of pip (-r, --hash, "
                "-e) are not read",
            ) from error
        name = canonicalize_name(requirement.name)
        if name in found:
            raise UsageError(f"{origin}: {name} is named twice")
        found[name] = str(requirement)
    if not found:
        raise UsageError(f"{origin}: names no package")
    return tuple(found[name] for name in sorted(found))
