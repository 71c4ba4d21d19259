"""One fault, one row: how it is caused, what must be seen, and what must be left afterwards."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .conftest import RUN_SECONDS, Program

INJECTED = Path(__file__).parent / "injected"
"""On ``PYTHONPATH``, it causes faults in every Python process (its sitecustomize.py)."""
SOON_SECONDS = 7.0
Done = subprocess.CompletedProcess[str]


def nothing(program: Program) -> None:
    """No preparation."""
    del program


def exit_code(program: Program, done: Done) -> str:
    """What most faults are judged by."""
    del program
    return f"exit {done.returncode}"


@dataclass(frozen=True)
class Fault:
    """A fault of the host or of the user, caused through the real command.

    Attributes:
        name: In the table.
        how: It is injected; in the table.
        argv: Arguments of torchscale.
        codes: Of which the exit code must be one.
        said: A pattern that must be in the output (line breaks read as blanks); empty for none.
        prepare: Before the command.
        variables: Added to the environment; ``None`` removes one. ``{directory}`` is the test's,
            ``{soon}`` a time while ranks start or measure.
        limits: Of the process, as :func:`resource.setrlimit` takes them.
        namespace: Options of ``unshare`` beside a user namespace; empty for none.
        script: Commands of sh in that namespace, before torchscale starts there; ``$D`` is the
            test's directory.
        look: What was seen, after checks of its own; it may raise AssertionError.
        leaves: Patterns of what the command may leave in the test's directory, beside what was
            there.
    """

    name: str
    how: str
    argv: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    said: str = ""
    prepare: Callable[[Program], None] = nothing
    variables: Mapping[str, str | None] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)
    namespace: str = ""
    script: str = ""
    look: Callable[[Program, Done], str] = exit_code
    leaves: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """For the table."""
        codes = " or ".join(map(str, self.codes))
        return f"exit {codes}" + (f': "{self.said}"' if self.said else "")

    def cause(self, program: Program) -> str:
        """Cause the fault, and check what is seen and what is left.

        Returns:
            What was seen.

        Raises:
            AssertionError: it is not as expected.
        """
        self.prepare(program)
        scratch = program.directory / "tmp"
        scratch.mkdir()
        before = _names(program.directory)
        done = self.run(program)
        told = " ".join((done.stdout + done.stderr).split())
        assert done.returncode in self.codes, (
            done.returncode,
            done.stdout[-2000:],
            done.stderr[-3000:],
        )
        assert re.search(self.said, told), told[-3000:]
        assert not re.search(r"^Traceback", done.stdout + done.stderr, re.MULTILINE), told[-3000:]
        seen = self.look(program, done)
        assert program.leftovers() == []
        new = sorted(_names(program.directory) - before)
        assert [
            name for name in new if not any(re.fullmatch(pattern, name) for pattern in self.leaves)
        ] == []
        assert list(scratch.iterdir()) == []
        assert not [path for path in program.directory.rglob("*.tmp") if path.is_file()]
        return seen

    def run(self, program: Program) -> Done:
        """Run the command as the fault has it."""
        argv: Sequence[str] = program.argv(*self.argv)
        if self.namespace:
            commands = f'set -e; D="$1"; shift; {self.script or ":"}; exec "$@"'
            argv = [
                "unshare",
                *self.namespace.split(),
                "sh",
                "-c",
                commands,
                "sh",
                str(program.directory),
                *argv,
            ]
        return subprocess.run(
            [os.fsencode(part) for part in argv],
            cwd=program.directory,
            env=self.environment(program),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=RUN_SECONDS,
            check=False,
            preexec_fn=self._limit,
        )

    def environment(self, program: Program) -> dict[str, str]:
        """Of the command."""
        changed = {**program.env(), "TMPDIR": str(program.directory / "tmp"), **self.variables}
        given = {name: value for name, value in changed.items() if value is not None}
        places = {"{directory}": str(program.directory), "{soon}": str(time.time() + SOON_SECONDS)}
        for place, text in places.items():
            given = {name: value.replace(place, text) for name, value in given.items()}
        return given

    def _limit(self) -> None:
        for what, value in self.limits.items():
            resource.setrlimit(what, (value, value))


def injected(program_path: str = "") -> str:
    """``PYTHONPATH`` with the injected faults before everything else."""
    models = Path(__file__).parent / "models"
    return os.pathsep.join(
        filter(None, [str(INJECTED), str(models), program_path, os.environ.get("PYTHONPATH")])
    )


def can_unshare(options: str) -> bool:
    """Whether this machine lets us make such a namespace."""
    done = subprocess.run(
        ["/usr/bin/unshare", *options.split(), "true"], capture_output=True, timeout=30, check=False
    )
    return done.returncode == 0


def _names(directory: Path) -> set[str]:
    """Entries of the directory, and of the results directory in it."""
    return {path.relative_to(directory).as_posix() for path in directory.iterdir()}
