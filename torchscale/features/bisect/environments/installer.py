"""What makes an environment: uv, or venv and pip where there is no uv."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.features.bisect.environments.variables import plain_environment
from torchscale.util.git import without_repository
from torchscale.util.interpreter import installed_program, interpreter, module_command
from torchscale.util.processes.subprocesses import inherited_environment


@dataclass(frozen=True)
class Sources:
    """Where packages come from.

    Attributes:
        wheels: Directories with wheels.
        index: Address of a package index, or ``default`` for that which pip is set up for; ``None``
            for none: nothing is looked for in a network.
        common: Requirements that every environment has besides its own.
        with_torchscale: Whether ``torchscale`` is to be a command of every environment.
    """

    wheels: tuple[Path, ...] = ()
    index: str | None = None
    common: tuple[str, ...] = ()
    with_torchscale: bool = False

    @property
    def options(self) -> list[str]:
        """Options of pip and uv."""
        found = [f"--find-links={path.absolute()}" for path in self.wheels]
        if self.index is None:
            return ["--no-index", *found]
        if self.index != "default":
            return [f"--index-url={self.index}", *found]
        return found


class Installer:
    """Makes environments of packages from some sources."""

    def __init__(self, cache: Path, sources: Sources) -> None:
        self._cache, self._sources = cache, sources
        self._uv = installed_program("uv")

    @property
    def name(self) -> str:
        """``uv`` or ``pip``."""
        return "uv" if self._uv else "pip"

    def variables(self) -> dict[str, str]:
        """The variables of a build. Without an index, nothing that pip or uv were set up with says
        where else packages come from, and uv keeps what it unpacks below the cache."""
        known = without_repository(plain_environment(inherited_environment()))
        if self._sources.index is not None:
            return known
        kept = {
            name: value for name, value in known.items() if not name.startswith(("PIP_", "UV_"))
        }
        own = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(self._cache / "uv")}
        return {**kept, **own, "PIP_CONFIG_FILE": os.devnull}

    def forgetting(self, packages: Sequence[str]) -> list[tuple[str, list[str]]]:
        """What has uv unpack these packages again, by name."""
        if self._uv is None or not packages:
            return []
        return [("uv cache clean", [self._uv, "cache", "clean", "--quiet", *packages])]

    def commands(self, directory: Path, wanted: Path) -> list[tuple[str, list[str]]]:
        """What makes it, by name: a new environment, and what is installed in it."""
        python = str(directory / "bin" / "python")
        install = ["install", *self._sources.options, f"--requirement={wanted}"]
        if self._uv is not None:
            environment = ["venv", "--quiet", f"--python={interpreter()}", str(directory)]
            install += [f"--python={python}", "--compile-bytecode"]
            return [
                ("uv venv", [self._uv, *environment]),
                ("uv pip install", [self._uv, "pip", *install]),
            ]
        install += ["--quiet", "--no-input", "--disable-pip-version-check"]
        if importlib.util.find_spec("pip") is not None:
            return [
                ("venv", module_command("venv", "--without-pip", str(directory))),
                ("pip install", module_command("pip", f"--python={python}", *install)),
            ]
        return [
            ("venv", module_command("venv", str(directory))),
            ("pip install", [python, "-m", "pip", *install]),
        ]
