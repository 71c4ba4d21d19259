"""The baseline file of the pytest plugin: times by test, read and updated."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from torchscale.errors import OutputError, UsageError
from torchscale.pytest_plugin.timing import TimingSession
from torchscale.schema.base import Frozen
from torchscale.util.files import atomic_write_text, make_directory, read_bounded
from torchscale.util.processes.subprocesses import wait_until

MAX_SESSIONS = 10
"""Maximum number of sessions that the baseline keeps of a test; the estimate of the noise between
them is good from five on (docs/compare.md)."""
_UPDATE_SECONDS = 10.0
"""An update reads and writes one file of up to 16 MiB."""
_MAX_FILE_BYTES = 16 * 1024 * 1024
"""Thousands of tests with all their sessions."""


class TimingBaseline(Frozen):
    """The content of the baseline file: sessions by test, the newest last."""

    schema_version: Literal[1] = 1
    tests: Mapping[str, tuple[TimingSession, ...]] = Field(default_factory=dict)


def read_times(path: Path) -> TimingBaseline:
    """The baseline file; empty where there is none.

    Raises:
        UsageError: it is no such file, or cannot be read.
    """
    try:
        return TimingBaseline.model_validate_json(read_bounded(path, _MAX_FILE_BYTES))
    except FileNotFoundError:
        return TimingBaseline()
    except (OSError, ValidationError) as error:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        else:
            first = error.errors(include_url=False, include_input=False)[0]
            reason = ".".join(map(str, first["loc"])) + f": {first['msg']}"
        raise UsageError(
            f"{path}: not a baseline of the pytest plugin: {reason.strip(': ')}"
        ) from error


def update_times(path: Path, measured: Mapping[str, TimingSession], *, add: bool) -> None:
    """Write new sessions into the baseline file; tests that were not measured keep theirs.

    Args:
        path: The file; its directory is made.
        measured: Measured times by test.
        add: Keep the earlier sessions of the same machine, :data:`MAX_SESSIONS` at most, instead of
            replacing them.

    Raises:
        UsageError: there is another file.
        OutputError: it cannot be written.
    """
    make_directory(path.parent)
    with _held(path.parent):
        tests = dict(read_times(path).tests)
        for name, session in measured.items():
            earlier = [one for one in tests.get(name, ()) if add and one.machine == session.machine]
            tests[name] = (*earlier, session)[-MAX_SESSIONS:]
        content = TimingBaseline(tests=dict(sorted(tests.items())))
        atomic_write_text(path, content.model_dump_json(indent=1) + "\n")


@contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Hold a directory against another session that updates a baseline in it: one would overwrite
    what the other has written. Some file systems know no locks: there the update goes on without.

    Raises:
        OutputError: another session holds it for longer than an update takes.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not wait_until(
            lambda: _is_locked_or_lockless(descriptor), timeout_seconds=_UPDATE_SECONDS
        ):
            raise OutputError(
                f"{directory} is held by another process", hint="wait for it, and run again"
            )
        yield
    finally:
        os.close(descriptor)


def _is_locked_or_lockless(descriptor: int) -> bool:
    """Whether the lock is held by this process now, or cannot be had on this file system."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
