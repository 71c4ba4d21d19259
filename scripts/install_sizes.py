"""Megabytes and seconds of each extra: builds the wheel and installs it into new environments.

::

    python scripts/install_sizes.py                 # core and report
    python scripts/install_sizes.py core train      # train downloads PyTorch, of constraints.txt

Writes ``build/install_sizes.md``. pip's cache is used: seconds are those of unpacking and compiling
what was fetched before, so run it twice for a figure without the network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "build" / "install_sizes.md"
EXTRAS = ("core", "report", "export", "storage", "train", "all")
_LIMIT_SECONDS = 1800.0
"""PyTorch with CUDA is several GB."""


@dataclass(frozen=True)
class Installation:
    """What installing one extra took.

    Attributes:
        name: Extra, or ``core``.
        megabytes: Growth of the environment on disk, in units of 10⁶ bytes.
        seconds: Wall time of pip.
        packages: Distributions that were installed.
    """

    name: str
    megabytes: float
    seconds: float
    packages: int


def build_wheel(directory: Path) -> Path:
    """The wheel of this checkout, built from its sdist in an environment of its own by
    ``build``."""
    _run([sys.executable, "-m", "build", "--outdir", str(directory), str(ROOT)])
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, name: str, directory: Path) -> Installation:
    """Install the wheel with an extra into a new environment, and show that the program starts
    there."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    before = size_of(directory)
    target = str(wheel) if name == "core" else f"{wheel}[{name}]"
    start = time.perf_counter()
    _run(
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            str(ROOT / "constraints.txt"),
            target,
        ]
    )
    seconds = time.perf_counter() - start
    _run([str(directory / "bin" / "torchscale"), "--version"])
    return Installation(name, (size_of(directory) - before) / 1e6, seconds, _packages(python))


def size_of(directory: Path) -> int:
    """Bytes of all files of a directory; links are not followed."""
    return sum(
        path.lstat().st_size
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def table(installations: Sequence[Installation]) -> str:
    """The figures as a table in Markdown."""
    rows = []
    for it in installations:
        name = it.name if it.name == "core" else f"`[{it.name}]`"
        rows.append(f"| {name} | {it.packages} | {it.megabytes:.0f} | {it.seconds:.0f} |")
    return "\n".join(["| install | packages | MB | s |", "|---|---|---|---|", *rows]) + "\n"


def _packages(python: Path) -> int:
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return sum(
        not line.startswith(("pip==", "setuptools==")) for line in listed.stdout.splitlines()
    )


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, timeout=_LIMIT_SECONDS, stdout=subprocess.DEVNULL)


def main() -> None:
    """Measure the extras that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("extras", nargs="*", default=["core", "report"], help=", ".join(EXTRAS))
    chosen = parser.parse_args().extras
    if unknown := [name for name in chosen if name not in EXTRAS]:
        parser.error(f"{unknown[0]}: expected some of {', '.join(EXTRAS)}")
    with tempfile.TemporaryDirectory() as place:
        wheel = build_wheel(Path(place))
        found = [install(wheel, name, Path(place) / name) for name in chosen]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(found), encoding="utf-8")
    sys.stdout.write(table(found))


if __name__ == "__main__":
    main()
