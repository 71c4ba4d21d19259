"""Subprocesses with a time limit, whose input and output are files."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchscale.errors import MachineError
from torchscale.util.logs import KEPT_BYTES, free_middle
from torchscale.util.processes.subprocesses import ManagedProcess, wait_until


@dataclass(frozen=True)
class Finished:
    """How a bounded subprocess ended; ``returncode`` is negative for a signal, ``None`` if it could
    not be terminated."""

    returncode: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float


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


def _content(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - KEPT_BYTES))
    return file.read().replace(b"\0", b"").decode("utf-8", errors="replace")
