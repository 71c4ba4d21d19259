"""The exception tree. Every error that a user may cause or see has a message, an optional hint and
an exit code."""

from __future__ import annotations

from enum import IntEnum

FILE_SYSTEM_HINT = "look whether the file system answers and lets you in: ls -l, df, dmesg"


class ProgramExit(SystemExit):
    """The command ends with the exit code of a program that it has run, whatever of its own output
    cannot be written."""


class ExitCode(IntEnum):
    """Exit codes of the command line (documented in ``docs/cli.md``)."""

    OK = 0
    """Success; skipped cells are no failure."""
    FAILED = 1
    """A measurement or a check failed, or a comparison found a regression."""
    USAGE = 2
    """The user's input is wrong."""
    UNABLE = 3
    """This machine cannot run what was requested."""
    UNDECIDED = 4
    """An acceptance found no fault, and measured too little for *keep*."""
    INTERRUPTED = 130
    """Ended by Ctrl-C or a termination signal."""


class TorchscaleError(Exception):
    """Base of every error that torchscale raises on purpose; the CLI catches it once.

    ``message`` names the value and what was expected; ``hint`` is one sentence on what to do next.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(TorchscaleError):
    """The experiment's configuration is invalid: the message names the key, the line, the value and
    what was expected."""

    exit_code = ExitCode.USAGE


class UsageError(TorchscaleError):
    """A command-line argument is invalid."""

    exit_code = ExitCode.USAGE


class MachineError(TorchscaleError):
    """This machine lacks a device, library or program that the command needs."""

    exit_code = ExitCode.UNABLE


class StoreError(TorchscaleError):
    """A results directory cannot be used: it is missing, damaged, or of another experiment."""

    exit_code = ExitCode.USAGE


class FileSystemError(StoreError):
    """A file system does not give what it holds: a server that is gone, a lost mount, a bad disk, no
    permission. What is there may be whole."""

    exit_code = ExitCode.UNABLE

    @classmethod
    def of(cls, error: OSError) -> FileSystemError:
        """What this error is to a user."""
        path = "a file" if error.filename is None else error.filename
        return cls(f"cannot use {path}: {error.strerror or error}", hint=FILE_SYSTEM_HINT)


class TraceError(TorchscaleError):
    """A recording cannot be read: it is damaged, incomplete, or of an unknown format."""

    exit_code = ExitCode.USAGE


class OutputError(TorchscaleError):
    """An output could not be written (disk full, no permission)."""

    exit_code = ExitCode.UNABLE
