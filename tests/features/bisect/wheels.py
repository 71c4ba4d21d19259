"""Wheels of one module, written by hand: no build tool and no network."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

WORK = """
def work():
    total = 0
    for number in range({loops}):
        total += number
    return total
"""


def write_wheel(
    directory: Path, name: str, version: str, body: str, requires: Sequence[str] = ()
) -> Path:
    """A wheel of a package with one module."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}/__init__.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in {**files, f"{info}/RECORD": listed}.items():
            archive.writestr(inside, text)
    return path


def write_versions(
    directory: Path, *, versions: int, first_slow: int, extra: float, loops: int
) -> None:
    """``demo`` 1.0, 1.1, …: ``work()`` takes ``loops`` rounds, and a share ``extra`` more from
    ``first_slow`` on."""
    for version in range(versions):
        rounds = round(loops * (1 + extra * (version >= first_slow)))
        write_wheel(directory, "demo", f"1.{version}", WORK.format(loops=rounds))
