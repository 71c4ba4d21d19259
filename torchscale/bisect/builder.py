"""Environments of packages, built once each below a cache directory, by uv or by venv and pip.

An environment is built where it stays, since its programs (``torchrun``) have its path in their
first line and would break when renamed. What says that it is whole is a file that is written last,
under a lock: a build that was killed has none and is begun again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.bisect.environment import Environment
from torchscale.bisect.overlay import add_torchscale
from torchscale.schema.base import Frozen
from torchscale.store.lock import locked_folder
from torchscale.util.files import atomic_write_model, atomic_write_text, make_directory, remove_tree
from torchscale.util.interpreter import installed_program, interpreter, module_command
from torchscale.util.processes.subprocesses import Finished, inherited_environment, run_bounded
from torchscale.util.redaction import redact_text

BUILD_SECONDS = 1800.0
"""Of a build by default: torch with its libraries takes minutes over a slow link."""
_COMPLETE = "environment.json"
_LAST_LINES = 3
_LINE_CHARACTERS = 300


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


@dataclass(frozen=True)
class Built:
    """What became of an environment.

    Attributes:
        directory: Where it is; ``None`` where it could not be built.
        problem: Why not.
        seconds: What it took now; 0 where the cache had it.
    """

    directory: Path | None
    problem: str = ""
    seconds: float = 0.0


class _Complete(Frozen):
    """What a whole environment holds."""

    requirements: tuple[str, ...]
    python: str
    tool: str


class Builder:
    """Builds environments, and finds those that are there."""

    def __init__(
        self, cache: Path, sources: Sources, *, timeout_seconds: float = BUILD_SECONDS
    ) -> None:
        self._cache, self._sources = cache.absolute(), sources
        self._timeout_seconds = timeout_seconds
        self._uv = installed_program("uv")

    def directory(self, environment: Environment) -> Path:
        """Where an environment is or would be: by what is in it, where it comes from, and this
        Python."""
        origin = (
            *environment.requirements,
            *self._sources.common,
            *self._sources.options,
            interpreter(),
            *(["torchscale"] if self._sources.with_torchscale else []),
        )
        return self._cache / "environments" / Environment(requirements=origin).digest

    def is_built(self, environment: Environment) -> bool:
        """Whether the cache has it."""
        return (self.directory(environment) / _COMPLETE).is_file()

    def build(
        self, environment: Environment, cancelled: Callable[[], bool] = lambda: False
    ) -> Built:
        """Build it, unless the cache has it.

        Raises:
            StoreError: another process builds it.
            OutputError: the cache cannot be written.
            MachineError: no program can be started.
        """
        directory = self.directory(environment)
        make_directory(directory.parent)
        with locked_folder(directory.with_suffix(".lock")):
            if self.is_built(environment):
                return Built(directory)
            remove_tree(directory)
            wanted = directory.with_suffix(".txt")
            lines = (*environment.requirements, *self._sources.common)
            atomic_write_text(wanted, "".join(f"{line}\n" for line in lines))
            seconds = 0.0
            for command in self._commands(directory, wanted):
                done = run_bounded(
                    command,
                    timeout_seconds=self._timeout_seconds - seconds,
                    env=self._variables(),
                    cancelled=cancelled,
                )
                seconds += done.seconds
                problem = _problem(done, self._timeout_seconds)
                if problem:
                    remove_tree(directory)
                    return Built(None, problem, seconds)
            if self._sources.with_torchscale:
                add_torchscale(directory, self._cache / "torchscale")
            complete = _Complete(
                requirements=lines, python=interpreter(), tool="uv" if self._uv else "pip"
            )
            atomic_write_model(directory / _COMPLETE, complete)
        return Built(directory, seconds=seconds)

    def _variables(self) -> dict[str, str]:
        """The variables of a build. Without an index, nothing that pip or uv were set up with says
        where else packages come from, and uv keeps what it unpacks below the cache."""
        known = _plain_environment(inherited_environment())
        if self._sources.index is not None:
            return known
        kept = {
            name: value for name, value in known.items() if not name.startswith(("PIP_", "UV_"))
        }
        own = {"UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(self._cache / "uv")}
        return {**kept, **own, "PIP_CONFIG_FILE": os.devnull}

    def _commands(self, directory: Path, wanted: Path) -> list[list[str]]:
        """What makes it: a new environment, and what is installed in it."""
        python = str(directory / "bin" / "python")
        install = ["install", *self._sources.options, f"--requirement={wanted}"]
        if self._uv is not None:
            return [
                [self._uv, "venv", "--quiet", f"--python={interpreter()}", str(directory)],
                [self._uv, "pip", *install, f"--python={python}", "--compile-bytecode"],
            ]
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
        if importlib.util.find_spec("pip") is not None:
            pip = module_command("pip", f"--python={python}")
            return [
                module_command("venv", "--without-pip", str(directory)),
                [*pip, *install, *quiet],
            ]
        return [
            module_command("venv", str(directory)),
            [python, "-m", "pip", *install, *quiet],
        ]


def variables_of(directory: Path | None, variables: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The environment variables of a command in a built environment, or in the user's own."""
    known: Mapping[str, str] = inherited_environment()
    if directory is not None:
        known = {
            **_plain_environment(known),
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


def _plain_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Without what brings packages of the user's own environment into another one."""
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    return {name: value for name, value in variables.items() if name not in own}


def _problem(done: Finished, timeout_seconds: float) -> str:
    """Why a step of a build failed; empty where it did not."""
    if done.timed_out:
        return f"it took longer than {timeout_seconds:g} s (--build-timeout)"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    said = " / ".join(line[:_LINE_CHARACTERS] for line in lines[-_LAST_LINES:])
    return redact_text(said) or f"exit code {done.returncode}"
