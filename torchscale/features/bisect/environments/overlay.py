"""torchscale itself in a built environment, for its built-in cells.

A directory of links to torchscale and to what its core requires is named in a ``.pth`` file of the
environment, so that Python looks there after the environment's own packages: those win, and
torchscale's requirements decide nothing about what can be installed. torch is never among the
links. Other commands get no links: a program that behaves otherwise where numpy is there would be
measured with numpy.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from torchscale.errors import OutputError
from torchscale.util.files import atomic_write_text, make_directory, remove_tree
from torchscale.version import DISTRIBUTION

_PACKAGE = Path(__file__).resolve().parents[3]
_NEVER = frozenset({"torch", "torchvision", "transformers"})
_ALSO = ("packaging",)
"""Of an installation whose metadata is older than the code."""
_SCRIPT = """#!{python}
from torchscale.__main__ import run

run()
"""


def link_torchscale(overlay: Path) -> None:
    """Make the links, or those of them that lead elsewhere: to an installation of before.

    Args:
        overlay: Directory for them.

    Raises:
        OutputError: one cannot be made.
    """
    make_directory(overlay)
    for target in (_PACKAGE, *_core_files()):
        link = overlay / target.name
        try:
            if link.is_symlink() and link.readlink() == target:
                continue
            fresh = overlay / f".{target.name}.{os.urandom(6).hex()}.tmp"
            fresh.symlink_to(target)
            if link.is_dir() and not link.is_symlink():
                remove_tree(link)
            fresh.replace(link)
        except OSError as error:
            raise OutputError(f"cannot write {link}: {error.strerror}") from error


def add_torchscale(environment: Path, overlay: Path) -> None:
    """Make ``torchscale`` a command of an environment.

    Args:
        environment: A built one.
        overlay: Directory of the links.

    Raises:
        OutputError: something cannot be written.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    atomic_write_text(packages / "torchscale.pth", f"{overlay.absolute()}\n")
    script = environment / "bin" / "torchscale"
    atomic_write_text(script, _SCRIPT.format(python=environment.absolute() / "bin" / "python"))
    script.chmod(0o755)


def _core_files() -> list[Path]:
    """Packages, modules and metadata of everything that the core requires, with all that this
    requires."""
    found: dict[str, list[Path]] = {}
    waiting = [*_required(DISTRIBUTION), *_ALSO]
    while waiting:
        name = waiting.pop()
        if name in found or name in _NEVER:
            continue
        found[name] = _top_level(metadata.distribution(name))
        waiting += _required(name)
    return [path for paths in found.values() for path in paths]


def _required(name: str) -> list[str]:
    requirements = map(Requirement, metadata.requires(name) or ())
    return [
        one.name.lower()
        for one in requirements
        if one.marker is None or one.marker.evaluate({"extra": ""})
    ]


def _top_level(distribution: metadata.Distribution) -> list[Path]:
    """What stands beside the packages of others."""
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    return [Path(str(distribution.locate_file(name))) for name in sorted(names)]
