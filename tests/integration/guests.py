"""A program run by itself and under ``torchscale watch``, and what of it can be told apart."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.zygote import led_by_a_shell

SITE = Path(__file__).parents[2] / "torchscale" / "worker" / "watch" / "site"
BOUND_SECONDS = 60.0
"""A program takes less than five seconds; one that does not end has been held up."""
STDIN = "what the program reads\n"
_OWN = re.compile(r"(note: |[\d,]+ steps? |No step was seen|Failed (?:after|before) |$)")
"""How what the command itself says begins, after all that the program has said."""
_OWN_FRAME = re.compile(r'^ *File "[^"\n]*/worker/watch/[^\n]*\n(?: {4}[^\n]*\n)*', re.MULTILINE)
"""Of a traceback: a function of torch that is noted is called through one of the collector's, and a
traceback has that frame more."""
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_LEADER = """
import os, sys
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.environ["GUEST_LEADER"] = str(os.getppid())
    os.environ["GUEST_COMMAND"] = str(os.getpid())
    os.execvp(sys.argv[1], sys.argv[1:])
status = os.waitpid(child, 0)[1]
os._exit(os.waitstatus_to_exitcode(status) & 255 if os.WIFEXITED(status) else 128 + status % 128)
"""
"""Starts a command as a shell with job control does: in a process group of its own, of a session
that has another one. ``GUEST_COMMAND`` is the process that the user has started, and signals."""


@dataclass(frozen=True)
class Guest:
    """A program, and how it is started.

    Attributes:
        name: Of the case.
        source: Python.
        steps: That the report has to have, so that the program was really watched; ``None`` where
            that is not asked.
        flags: Of its Python.
        arguments: Of the program.
        before: Stands before the whole command, as ``nohup`` does.
        around: Stands before the program alone, after ``--``.
        options: Of ``torchscale watch``.
        variables: Of the environment.
        files: Name → text of further files in its working directory.
        mounts: Shell command that is run in a mount namespace of its own first; ``JOB`` is the
            folder of the run.
        prints_report: Whether what it says on standard output is followed by the report.
        hides_errors: Whether standard error is not to be had.
        is_real: Whether it has to be started also where it runs by itself, being about how it
            starts or what it imports.
    """

    name: str
    source: str
    steps: int | None = None
    flags: tuple[str, ...] = ()
    arguments: tuple[str | bytes, ...] = ()
    before: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: str = ""
    prints_report: bool = False
    hides_errors: bool = False
    is_real: bool = False

    @property
    def can_be_forked(self) -> bool:
        """Whether by itself it is worth a fork of a process that has imported torch, and can be
        one: a light program imports nothing, and one that looks at how it was started, or at what
        it imports, has to be started."""
        further = (self.flags, self.before, self.around, self.mounts)
        return self.source.count("train(") > 1 and not any(further) and not self.is_real


@dataclass(frozen=True)
class Seen:
    """What a program did.

    Attributes:
        code: As a shell has it: 128 and the signal where one ended it.
        output, errors: What it said.
        files: Of its working directory: path → kind and content.
        left: Command lines of processes that were still there, and were ended.
    """

    code: int
    output: str
    errors: str
    files: Mapping[str, str]
    left: tuple[str, ...]


def run_guest(guest: Guest, directory: Path) -> tuple[Seen, Seen]:
    """The program by itself, and then watched, in a working directory of the same name."""
    here = directory / "here"
    job = directory / "job"
    watch = [sys.executable, "-m", "torchscale", "watch", "--no-live", *guest.options]
    watch += ["-o", os.path.relpath(job, here), "--"]
    alone = _run(guest, [], here, directory / "alone")
    return alone, _run(guest, watch, here, directory / "watched")


def check_same(guest: Guest, alone: Seen, watched: Seen, directory: Path) -> None:
    """That nothing tells the two apart.

    Raises:
        AssertionError: something does.
    """
    rest = watched.errors.removeprefix(alone.errors)
    told = f"watched, it said:\n{watched.errors}"
    if not guest.prints_report:
        assert watched.output == alone.output, _differences(alone.output, watched.output) + told
    assert watched.code == alone.code, told
    assert watched.output.startswith(alone.output)
    if not guest.hides_errors:
        assert watched.errors.startswith(alone.errors), _differences(alone.errors, watched.errors)
        assert _OWN.match(rest), told
        assert "Traceback" not in rest, told
    assert watched.files == alone.files, told
    assert watched.left == alone.left
    if guest.steps is not None:
        report = json.loads((directory / "job" / "watch.json").read_text())
        assert report["steps"] == guest.steps, (report["steps"], report["notes"])


def _run(guest: Guest, watch: list[str], here: Path, kept: Path) -> Seen:
    """Run in ``here``, which is renamed to ``kept`` afterwards."""
    here.mkdir()
    here.parent.joinpath("job").mkdir(exist_ok=True)
    (here / "train.py").write_text(guest.source)
    for name, text in guest.files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    argv: list[str | bytes] = [sys.executable, "-c", _LEADER, *_mounted(guest, here), *guest.before]
    argv += [*watch, *guest.around, sys.executable, *guest.flags, "train.py", *guest.arguments]
    prepare = None
    if not watch and guest.can_be_forked:
        argv, prepare = [sys.executable, "train.py", *guest.arguments], led_by_a_shell
    process = subprocess.Popen(
        argv,
        cwd=here,
        env=_environment(guest),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509 - never called
    )
    try:
        output, errors = process.communicate(STDIN, timeout=BOUND_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"no end in {BOUND_SECONDS:.0f} s: {_tell(error)}") from None
    finally:
        left = end_session(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
    seen = Seen(process.returncode, _plain(output), _plain(errors), _files(here), left)
    here.rename(kept)
    return seen


def _mounted(guest: Guest, here: Path) -> list[str]:
    if not guest.mounts:
        return []
    script = guest.mounts.replace("JOB", str(here.parent / "job"))
    return [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'{script}; exec "$@"',
        "sh",
    ]


def _environment(guest: Guest) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCHSCALE_", "PYTEST_", "COV_"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", **guest.variables}


def end_session(session: int) -> tuple[str, ...]:
    """End what is left of a session; the command lines of what was alive."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) != session or process.status() == psutil.STATUS_ZOMBIE:
                continue
            left.append(" ".join(process.cmdline()[1:])[:80])
            process.send_signal(signal.SIGKILL)
    return tuple(sorted(left))


def _differences(alone: str, watched: str) -> str:
    lines = difflib.unified_diff(
        alone.splitlines(), watched.splitlines(), "alone", "watched", lineterm="", n=0
    )
    return "\n".join(["not the same:", *lines, ""])


def _plain(text: str) -> str:
    """Without what differs between two runs of any program, and with the collector's frames out of
    tracebacks."""
    return _ADDRESS.sub("0x", _OWN_FRAME.sub("", text))


def _files(here: Path) -> dict[str, str]:
    return {
        str(path.relative_to(here)): _content(path)
        for path in sorted(here.rglob("*"))
        if "__pycache__" not in path.parts
    }


def _content(path: Path) -> str:
    mode = oct(path.lstat().st_mode)
    if path.is_symlink():
        return f"{mode} {path.readlink()}"
    return f"{mode} {path.read_bytes().hex()}" if path.is_file() else mode


def _tell(error: subprocess.TimeoutExpired) -> str:
    said: list[Any] = [error.stdout, error.stderr]
    return " ".join(
        part.decode(errors="replace") if isinstance(part, bytes) else part for part in said if part
    )
