"""Subprocesses with a time limit, and termination of whole process trees.

torchrun starts every rank in a session of its own, so neither a signal to its process group nor its
own death reaches them. What we started is found in two ways instead: by descent, and by a token in
the environment that descendants inherit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import psutil

from torchscale.errors import MachineError
from torchscale.util.files import read_end
from torchscale.util.logs import KEPT_BYTES, free_middle
from torchscale.util.processes.exit import end_with_parent
from torchscale.util.processes.names import AGENT_NAME, RANK_PROCESS
from torchscale.util.redaction import redact_arguments

TOKEN_VARIABLE = "TORCHSCALE_LAUNCH_TOKEN"  # noqa: S105 - a marker, not a secret
"""Environment variable that marks everything a launch started."""
LAUNCHER_VARIABLE = "TORCHSCALE_LAUNCHER_PID"
"""Environment variable with our pid: a rank that starts after our death ends itself."""

POLL_SECONDS = 0.05
"""A launcher that polls without sleeping slows the ranks that it measures; at 20 polls per second
it does not."""
_SHORTEST_POLL_SECONDS = 0.001
"""Shortest poll interval, for what ends at once, as a process that was killed does."""
TERM_GRACE_SECONDS = 5.0
"""Seconds between TERM and KILL: torchrun needs a moment to end its ranks and flush its log."""
KILL_GRACE_SECONDS = 5.0
"""After KILL only a process that hangs in the kernel is left (a dead file system or driver):
waiting longer is useless."""

_COMMAND_CHARACTERS = 80
"""Maximum number of characters of a command line in a message: the program and its first
arguments."""

_PROC = Path("/proc/self/stat")
_PR_SET_CHILD_SUBREAPER = 36
# Bound before any fork: between fork and exec a child of a threaded process may only make plain
# calls.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Finished:
    """How a bounded subprocess ended; ``returncode`` is negative for a signal, ``None`` if it could
    not be terminated."""

    returncode: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float


class ManagedProcess:
    """A subprocess that can be terminated with all its descendants. Start it from the main thread:
    it ends with that thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: IO[bytes],
        stderr: IO[bytes],
        stdin: IO[bytes] | int | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start ``argv`` in ``cwd``, or where this process is; without ``stdin`` it reads nothing.

        Raises:
            MachineError: the program cannot be started.
        """
        if sys.platform == "linux" and not _PROC.exists():
            raise MachineError(
                f"cannot start {argv[0]}: /proc is not mounted, so the processes it starts could "
                "not be found again",
                hint="mount -t proc proc /proc",
            )
        self.token = uuid.uuid4().hex
        self._children_before = frozenset(child.pid for child in psutil.Process().children())
        self._started_at = time.time()
        marked = {**env, TOKEN_VARIABLE: self.token, LAUNCHER_VARIABLE: str(os.getpid())}
        try:
            self._popen = subprocess.Popen(
                list(argv),
                env=marked,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                start_new_session=True,  # Ctrl-C reaches us alone, and we decide
                preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - plain calls alone
            )
        except OSError as error:
            raise MachineError(f"cannot start {argv[0]}: {error.strerror or error}") from error
        self.pid = self._popen.pid
        _started_here.add(self.pid)

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs."""
        return self._popen.poll()

    def end(self, *, grace_seconds: float = TERM_GRACE_SECONDS) -> tuple[str, ...]:
        """Terminate the process and all its descendants, also if the process itself has ended.
        Returns survivors (normally none), and daemons that the process may have left: those are
        only named, since a program that calls us may have started them."""
        survivors = end_family(self.token, root_pid=self.pid, grace_seconds=grace_seconds)
        if self._popen.poll() is None:
            try:
                self._popen.wait(timeout=KILL_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                return (*survivors, f"pid {self.pid}")
        self._note_adopted()
        return (*survivors, *_daemons_since(self._started_at, told=survivors))

    def _note_adopted(self) -> None:
        """Keep the children that were adopted while it ran."""
        for child in psutil.Process().children():
            if child.pid not in self._children_before and child.pid not in _started_here:
                _adopted[child.pid] = child


def end_family(
    token: str, *, root_pid: int | None = None, grace_seconds: float = TERM_GRACE_SECONDS
) -> tuple[str, ...]:
    """TERM, then KILL after ``grace_seconds``, everything that carries ``token`` or descends from
    ``root_pid``.

    Returns:
        ``pid N (name)`` of each process that could not be terminated.
    """
    family = _find_family(token, root_pid)
    if family:
        _signal_all(family, signal.SIGTERM)
        _wait_for_all(family, grace_seconds)
        family = _find_family(token, root_pid)
    deadline = time.monotonic() + KILL_GRACE_SECONDS
    while (
        family and time.monotonic() < deadline
    ):  # again: a child may have started between search and signal
        _signal_all(family, signal.SIGKILL)
        _wait_for_all(family, deadline - time.monotonic())
        family = _find_family(token, root_pid)
    return tuple(f"pid {process.pid} ({_name(process)})" for process in family)


def find_token_processes(token: str) -> list[psutil.Process]:
    """Every living process of this user whose environment carries ``token``."""
    processes = []
    for process in psutil.process_iter():
        try:
            carries = process.environ().get(TOKEN_VARIABLE) == token
            if carries and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                processes.append(process)
        except (psutil.Error, OSError):
            continue  # not readable by this user, or it has ended
    return processes


def inherited_environment() -> dict[str, str]:
    """This process's environment without PET_*: torchrun reads those as options (training operators
    set them in pods), and we pass all options on its command line. Without the token of a sweep's
    nodes too: ranks run code that need not know it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PET_") and name != "TORCHSCALE_TOKEN"
    }


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies, so that they are found and
    reaped."""
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def left_processes() -> dict[int, str]:
    """Processes that something which ran below this process left behind, and that still run: pid →
    command line. What a library has started in this process while nothing of ours ran is not among
    them."""
    if not _adopted:
        return {}
    _reap_orphans(except_pid=None)
    return {pid: _command_line(child) for pid, child in _adopted.items() if is_running(child)}


def run_bounded(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Finished:
    """Run ``argv`` to its end, to ``timeout_seconds`` or until ``cancelled``, then terminate its
    whole process tree. A non-zero exit is not an error. ``stdin``: what it can read from its
    standard input. ``cwd``: where it runs, by default where this process is.

    Input and output go through files: a pipe that a grandchild keeps open would outlast the limit.
    Of what is printed, the last :data:`~torchscale.util.logs.KEPT_BYTES` are returned, and not much
    more takes space while it runs.

    Raises:
        MachineError: the program cannot be started, or there is no place for temporary files.
    """
    return BoundedProcess(argv, env=env, stdin=stdin, cwd=cwd).finish(
        timeout_seconds=timeout_seconds, cancelled=cancelled
    )


class BoundedProcess:
    """A subprocess as :func:`run_bounded` runs it, for callers that do something else between its
    start and :meth:`finish`. As a context manager it ends at the latest with the context."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start ``argv``. Arguments and errors as :func:`run_bounded`."""
        with contextlib.ExitStack() as files:
            source = files.enter_context(unnamed_file(stdin or ""))
            self._out, self._err = (
                files.enter_context(unnamed_file()),
                files.enter_context(unnamed_file()),
            )
            self._started = time.monotonic()
            self._process = ManagedProcess(
                argv,
                env=os.environ if env is None else env,
                stdin=source,
                stdout=self._out,
                stderr=self._err,
                cwd=cwd,
            )
            self._files = files.pop_all()

    def finish(
        self, *, timeout_seconds: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Finished:
        """Wait until it ends, for ``timeout_seconds`` from now or until ``cancelled``, then
        terminate its whole process tree. To be called once, within the context if it is used as
        one."""
        freed = {self._out.fileno(): 0, self._err.fileno(): 0}

        def is_over() -> bool:
            for descriptor, end in freed.items():
                freed[descriptor] = free_middle(descriptor, 0, end)
            return self._process.poll() is not None

        with self._files:
            try:
                timed_out = not wait_until(
                    lambda: is_over() or cancelled(), timeout_seconds=timeout_seconds
                )
            finally:
                self._process.end()
            seconds = time.monotonic() - self._started
            return Finished(
                self._process.poll(), _content(self._out), _content(self._err), timed_out, seconds
            )

    def __enter__(self) -> BoundedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, unless :meth:`finish` has."""
        if not self._out.closed:
            with self._files:
                self._process.end()


def unnamed_file(content: str = "") -> IO[bytes]:
    """A temporary file without a name: it is gone with us, also after ``kill -9``.

    Raises:
        MachineError: it cannot be made.
    """
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            file.write(content.encode())
            file.seek(0)  # which writes out what is in Python's buffer
        except BaseException:
            file.close()
            raise
    except OSError as error:
        raise MachineError(
            f"cannot write temporary files: {error.strerror or error}",
            hint="set TMPDIR to a directory with free space",
        ) from error
    return file


def wait_until(condition: Callable[[], bool], *, timeout_seconds: float) -> bool:
    """Whether ``condition`` came true within ``timeout_seconds``; sleeps a tenth of the time waited
    so far between checks, 1 to 50 ms."""
    started = time.monotonic()
    while not condition():
        waited = time.monotonic() - started
        if waited >= timeout_seconds:
            return False
        time.sleep(min(max(waited / 10, _SHORTEST_POLL_SECONDS), POLL_SECONDS))
    return True


def tail(path: Path, max_bytes: int = 8192) -> str:
    """The last ``max_bytes`` of a text file; empty where it cannot be read."""
    try:
        return read_end(path, max_bytes).decode("utf-8", errors="replace")
    except OSError:
        return ""


_adopted: dict[int, psutil.Process] = {}
"""Processes that became children of this one while something of ours ran."""
_started_here: set[int] = set()
"""Pids of all processes that were started here; few in the life of a command."""


def _daemons_since(moment: float, told: Sequence[str]) -> tuple[str, ...]:
    """Children of this process, adopted as orphans, that began after ``moment`` (seconds since the
    epoch) in a session of their own, but for those that were ``told`` as survivors."""
    found = []
    survivors = {text.partition(" (")[0] for text in told}
    for child in psutil.Process().children():
        try:
            ours = child.pid in _started_here or child.create_time() < moment - 1
            ours = ours or f"pid {child.pid}" in survivors
            if (
                not ours
                and child.status() != psutil.STATUS_ZOMBIE
                and os.getsid(child.pid) != os.getsid(0)
            ):
                found.append(f"pid {child.pid} ({_command_line(child)}), a daemon")
        except (psutil.Error, OSError):
            continue  # it has ended
    return tuple(found)


def _find_family(token: str, root_pid: int | None) -> list[psutil.Process]:
    """Processes with the token and descendants of the root; our zombies are reaped as well."""
    family = {process.pid: process for process in find_token_processes(token)}
    if root_pid is not None:
        try:
            root = psutil.Process(root_pid)
            for process in (root, *root.children(recursive=True)):
                if process.status() != psutil.STATUS_ZOMBIE:
                    family.setdefault(process.pid, process)
        except psutil.Error:
            pass  # the root has ended; the token still finds the others
    _reap_orphans(except_pid=root_pid)
    return list(family.values())


def _reap_orphans(except_pid: int | None) -> None:
    """Collect adopted children that have ended; the root's status belongs to its Popen."""
    for child in psutil.Process().children():
        try:
            carries_no_status = child.pid == except_pid or child.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if not carries_no_status:
            try:
                os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue  # it has ended


def _wait_for_all(processes: Sequence[psutil.Process], timeout_seconds: float) -> None:
    """Wait until none runs. Not psutil's wait: it would collect a child's exit status, which
    belongs to the Popen."""
    wait_until(
        lambda: not any(is_running(process) for process in processes),
        timeout_seconds=timeout_seconds,
    )


def is_running(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _command_line(process: psutil.Process) -> str:
    """Command line of a process without secrets, cut to what fits a line of a message; its name
    where it has none."""
    try:
        arguments = process.cmdline()
    except psutil.Error:
        arguments = []
    text = " ".join(redact_arguments(arguments)) or _name(process)
    if len(text) <= _COMMAND_CHARACTERS:
        return text
    return f"{text[: _COMMAND_CHARACTERS - 1]}…"


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return "?"


def rank_environment(process: psutil.Process) -> dict[str, str]:
    """The environment of a process with what torchrun set for its rank, if it is one. A rank that
    is a fork has the environment of its agent, which may have that of another job's rank; its name
    tells the rest.

    Raises:
        psutil.Error: the process has ended, or belongs to another user.
    """
    environment = process.environ()
    name = process.name()
    if name == AGENT_NAME:
        return {variable: value for variable, value in environment.items() if variable != "RANK"}
    fork = RANK_PROCESS.fullmatch(name)
    if fork is not None:
        rank, processes = fork.groups()
        environment |= {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": processes,
            "LOCAL_WORLD_SIZE": processes,
        }
    return environment


def _content(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - KEPT_BYTES))
    return file.read().replace(b"\0", b"").decode("utf-8", errors="replace")
