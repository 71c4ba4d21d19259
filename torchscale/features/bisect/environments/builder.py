"""Environments of packages, built once each below a cache directory, by uv or by venv and pip.

An environment is built where it stays, since its programs (``torchrun``) have its path in their
first line and would break when renamed. What says that it is whole is a file that is written last,
under a lock, with what was installed: a build that was killed has none, and it does not fit an
environment that was changed since. Both are begun again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from pydantic import ValidationError

from torchscale.errors import MachineError, OutputError
from torchscale.features.bisect.disk import Disk
from torchscale.features.bisect.environment import ProgramEnvironment
from torchscale.features.bisect.environments.contents import (
    changed_in_cache,
    contents_of,
    differing,
    packages_of,
)
from torchscale.features.bisect.environments.installer import Installer, Sources
from torchscale.features.bisect.environments.overlay import add_torchscale, link_torchscale
from torchscale.schema.base import Frozen
from torchscale.store.lock import locked_folder
from torchscale.util.files import atomic_write_text, make_directory, read_bounded, remove_tree
from torchscale.util.interpreter import interpreter
from torchscale.util.processes.bounded import Finished, run_bounded
from torchscale.util.redaction import redact_text
from torchscale.util.text import one_line

BUILD_SECONDS = 1800.0
"""Of a build by default: torch with its libraries takes minutes over a slow link."""
_COMPLETE = "environment.json"
_START_SECONDS = 60.0
"""Until a Python of an environment has started, which takes 20 ms: from a cold network file system it
can take long."""
_SAY_WHAT = "import sys; print(sys.prefix, *sys.version_info)"
_MOST_BYTES = 16 << 20
"""Of the file that names what is in an environment: a thousand packages take 0.1 MB."""
_LAST_LINES = 3
_LINE_CHARACTERS = 300


@dataclass(frozen=True)
class Built:
    """What became of an environment.

    Attributes:
        directory: Where it is; ``None`` where it could not be built.
        problem: Why not.
        seconds: What it took now; 0 where the cache had it.
        note: Why one that the cache had was built again; empty where it was not.
    """

    directory: Path | None
    problem: str = ""
    seconds: float = 0.0
    note: str = ""


class _Complete(Frozen):
    """What a whole environment holds."""

    name: str
    """Of its directory."""
    requirements: tuple[str, ...]
    python: str
    """What its Python says of itself."""
    tool: str
    contents: dict[str, str]
    """As :func:`~torchscale.features.bisect.environments.contents.contents_of`."""


@dataclass(frozen=True)
class _Misfit:
    """Why an environment of the cache is not used.

    Attributes:
        why: To be read after "since".
        changed: Packages of an environment in which files are not those that were installed. uv
            links them to its cache, which has the same change then.
    """

    why: str
    changed: tuple[str, ...] = ()


class Builder:
    """Builds environments, and finds those that are there."""

    def __init__(
        self, cache: Path, sources: Sources, *, timeout_seconds: float = BUILD_SECONDS
    ) -> None:
        self._cache, self._sources = cache.absolute(), sources
        self._timeout_seconds = timeout_seconds
        self._installer = Installer(self._cache, sources)

    def directory(self, environment: ProgramEnvironment) -> Path:
        """Where an environment is or would be: by what is in it, where it comes from, and this
        Python."""
        origin = (
            *environment.requirements,
            *self._sources.common,
            *self._sources.options,
            interpreter(),
            *(["torchscale"] if self._sources.with_torchscale else []),
        )
        return self._cache / "environments" / ProgramEnvironment(requirements=origin).digest

    def is_built(self, environment: ProgramEnvironment) -> bool:
        """Whether the cache has it, as it was built."""
        return isinstance(self._read(self.directory(environment)), _Complete)

    def build(
        self, environment: ProgramEnvironment, cancelled: Callable[[], bool] = lambda: False
    ) -> Built:
        """Build it, unless the cache has it as it was built.

        Raises:
            StoreError: another process builds it.
            OutputError: the cache cannot be written, or a disk is full.
            MachineError: no program can be started.
        """
        directory = self.directory(environment)
        make_directory(directory.parent)
        with locked_folder(directory.with_suffix(".lock")):
            misfit = self._misfit(directory, cancelled)
            if cancelled():
                return Built(None, "interrupted")
            if misfit is None:
                if self._sources.with_torchscale:
                    link_torchscale(self._overlay)
                return Built(directory)
            was_there = os.path.lexists(directory / _COMPLETE)
            _clear(directory)
            try:
                built = self._build(directory, environment, misfit, cancelled)
            finally:
                if not os.path.lexists(directory / _COMPLETE):
                    remove_tree(directory)
        note = f"its cached environment is built again, since {misfit.why}" if was_there else ""
        return Built(built.directory, built.problem, built.seconds, note)

    @property
    def _overlay(self) -> Path:
        return self._cache / "torchscale"

    def _build(
        self,
        directory: Path,
        environment: ProgramEnvironment,
        misfit: _Misfit,
        cancelled: Callable[[], bool],
    ) -> Built:
        wanted = directory.with_suffix(".txt")
        lines = (*environment.requirements, *self._sources.common)
        atomic_write_text(wanted, "".join(f"{line}\n" for line in lines))
        seconds = 0.0
        steps = [
            *self._installer.forgetting(misfit.changed),
            *self._installer.commands(directory, wanted),
        ]
        while steps:
            for step, command in steps:
                disk = Disk(directory.parent)
                done = run_bounded(
                    command,
                    timeout_seconds=self._timeout_seconds - seconds,
                    env=self._installer.variables(),
                    cancelled=disk.watched(cancelled),
                )
                problem = _problem(
                    step, done, f"{self._timeout_seconds:g} s were over (--build-timeout)"
                )
                if not cancelled():
                    disk.check(f"build {shorten(', '.join(lines), _LINE_CHARACTERS)}", problem)
                seconds += done.seconds
                if problem:
                    return Built(None, problem, seconds)
            steps = []
            if not misfit.changed and changed_in_cache(directory):
                changed = packages_of(contents_of(directory, without=_COMPLETE))
                misfit = _Misfit("uv's cache was changed", changed)
                steps = [
                    *self._installer.forgetting(changed),
                    *self._installer.commands(directory, wanted),
                ]
                _clear(directory)
        if self._sources.with_torchscale:
            link_torchscale(self._overlay)
            add_torchscale(directory, self._overlay)
        python, problem = self._start(directory, cancelled)
        if problem:
            return Built(None, problem, seconds)
        complete = _Complete(
            name=directory.name,
            requirements=tuple(map(redact_text, lines)),
            python=python,
            tool=self._installer.name,
            contents=contents_of(directory, without=_COMPLETE),
        )
        # Names of packages are no secrets, whatever they are called.
        atomic_write_text(directory / _COMPLETE, complete.model_dump_json(indent=1))
        return Built(directory, seconds=seconds)

    def _read(self, directory: Path) -> _Complete | _Misfit:
        """What an environment held when it was built, or why it is not used, by its files."""
        if not os.path.lexists(directory / _COMPLETE):
            return _Misfit("its build did not end")
        if directory.is_symlink():
            return _Misfit("a link is in its place")
        try:
            text = read_bounded(directory / _COMPLETE, _MOST_BYTES)
            complete = _Complete.model_validate_json(text)
            now = contents_of(directory, without=_COMPLETE)
        except ValidationError:
            return _Misfit(f"its {_COMPLETE} is of another form")
        except OSError as error:
            return _Misfit(f"it cannot be read ({error.strerror})")
        if complete.name != directory.name:
            return _Misfit("it is that of other packages")
        changed = differing(complete.contents, now)
        if changed:
            why = f"{one_line(changed)} is not as it was installed"
            return _Misfit(why, packages_of(complete.contents))
        return complete

    def _misfit(self, directory: Path, cancelled: Callable[[], bool]) -> _Misfit | None:
        """Why an environment of the cache is not used; ``None`` where it is."""
        found = self._read(directory)
        if isinstance(found, _Misfit):
            return found
        python, problem = self._start(directory, cancelled)
        if problem:
            return _Misfit(f"its Python does not start: {problem}")
        if python != found.python:
            return _Misfit(f"its Python was {found.python} and is {python}")
        return None

    def _start(self, directory: Path, cancelled: Callable[[], bool]) -> tuple[str, str]:
        """What the Python of an environment says of itself, or why it does not start."""
        python = directory / "bin" / "python"
        if not python.exists():
            return "", f"{python} is not there"
        try:
            done = run_bounded(
                [str(python), "-I", "-c", _SAY_WHAT],
                timeout_seconds=_START_SECONDS,
                env=self._installer.variables(),
                cancelled=cancelled,
            )
        except MachineError as error:
            return "", error.message
        problem = _problem(str(python), done, f"{_START_SECONDS:g} s were over")
        lines = done.stdout.splitlines()
        if problem or not lines:
            return "", problem or f"{python} says nothing of itself"
        return lines[-1].removeprefix(f"{directory} "), ""


def _clear(directory: Path) -> None:
    """Remove what is left of an environment: what stays would be part of the next.

    Raises:
        OutputError: it cannot be removed.
    """
    remove_tree(directory)
    if os.path.lexists(directory):
        raise OutputError(f"cannot remove {directory}", hint="remove it, or name another --cache")


def _problem(step: str, done: Finished, limit: str) -> str:
    """Why a step of a build failed; empty where it did not. ``limit``: when it had to end."""
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    said = redact_text(" / ".join(line[:_LINE_CHARACTERS] for line in lines[-_LAST_LINES:]))
    if done.timed_out:
        late = f"{step} had not ended when {limit}"
        return f"{late}: {said}" if said else late
    return said or f"{step}: exit code {done.returncode}"
