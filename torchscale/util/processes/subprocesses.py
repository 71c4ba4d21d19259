"""Subprocesses with a time limit, and termination of whole process trees.

torchrun starts every rank in a session of its own, so neither a signal to its process group nor its
own death reaches them. What we started is found in two ways instead: by descent, and by a token in
the environment that descendants inherit.
"""

from __future__ import annotations

# Locks what it has at forks. Imported by another thread in the middle of one, it would release there
# what it has not locked, and Python would print that.
import concurrent.futures.thread  # noqa: F401
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import psutil

from torchscale.errors import MachineError
from torchscale.util.files import read_end
from torchscale.util.processes.description import command_line, is_running, process_name
from torchscale.util.processes.exit import end_with_parent

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


_PROC = Path("/proc/self/stat")
_PR_SET_CHILD_SUBREAPER = 36
# Bound before any fork: between fork and exec a child of a threaded process may only make plain
# calls.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


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
    return tuple(f"pid {process.pid} ({process_name(process)})" for process in family)


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
    return {pid: command_line(child) for pid, child in _adopted.items() if is_running(child)}


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
                found.append(f"pid {child.pid} ({command_line(child)}), a daemon")
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
