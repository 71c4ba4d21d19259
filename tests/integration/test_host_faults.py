"""A host that lacks something: space, descriptors, a home, an encoding. A command works, or says what is wrong."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.campaign import cases, tell_fault
from tests.store.test_run_folder import measured

from .conftest import RUN_SECONDS, Program

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Lack:
    """What the host lacks: variables (``None`` removes one) and limits of the process; and how the command ends."""

    code: int
    said: str = ""
    variables: dict[str, str | None] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    def environment(self, program: Program) -> dict[str, str]:
        """The environment of the command."""
        changed = {**program.env(), **self.variables}
        return {name: value for name, value in changed.items() if value is not None}

    def limit(self) -> None:
        """In the child, before the command."""
        for what, value in self.limits.items():
            resource.setrlimit(what, (value, value))


MARKDOWN = ("report", "results/run", "--format", "md", "--output", "out.md")
REPORTS = {
    "a file size of 100 bytes": Lack(3, "cannot write", limits={resource.RLIMIT_FSIZE: 100}, arguments=MARKDOWN),
    "no home and no TMPDIR": Lack(0, variables={"HOME": None, "TMPDIR": "/not/there"}, arguments=MARKDOWN),
    "an ASCII terminal": Lack(
        0,
        variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"},
        arguments=("report", "results/run", "--format", "terminal"),
    ),
}
MORE = {
    "a Latin-1 terminal": Lack(
        0, variables={"PYTHONIOENCODING": "latin-1"}, arguments=("report", "results/run", "--format", "terminal")
    ),
    "32 descriptors": Lack(0, limits={resource.RLIMIT_NOFILE: 32}, arguments=MARKDOWN),
    "an argument that is no text": Lack(
        2,
        "not text in the encoding of this terminal",
        variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        arguments=("report", "results/run", "--output", "b\u00e9richt.md"),
    ),
}


def run(program: Program, lack: Lack) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [part.encode() for part in program.argv(*lack.arguments)],
        cwd=program.directory,
        env=lack.environment(program),
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=RUN_SECONDS,
        check=False,
        preexec_fn=lack.limit,
    )


@pytest.mark.parametrize("case", cases(list(REPORTS), list(MORE)))
def test_a_report(program: Program, case: str, record_property: Callable[[str, object], None]) -> None:
    lack = {**REPORTS, **MORE}[case]
    measured(program.directory / "results" / "run")
    before = sorted(path.name for path in program.directory.iterdir())
    done = run(program, lack)
    tell_fault(
        record_property, f"report with {case}", "limits and variables", f"exit {lack.code}", f"exit {done.returncode}"
    )
    assert done.returncode == lack.code, done.stderr
    assert lack.said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    written = sorted(path.name for path in program.directory.iterdir())
    assert written == (sorted([*before, "out.md"]) if "out.md" in lack.arguments and lack.code == 0 else before)
