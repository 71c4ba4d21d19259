"""The one exception tree. Every error a user may cause or meet carries a message, a hint and an exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller (documented in ``docs/cli.md``)."""

    OK = 0
    """All well; cells that were skipped with a reason count as well."""
    FAILED = 1
    """Something that was measured or checked failed or regressed."""
    USAGE = 2
    """The user's input is wrong."""
    UNABLE = 3
    """This machine cannot do what was asked."""
    INTERRUPTED = 130
    """Ended by Ctrl-C or a termination signal."""


class TorchscaleError(Exception):
    """Base of every error that torchscale raises on purpose; the CLI catches it once.

    ``hint`` is one sentence that says what to do next.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(TorchscaleError):
    """The experiment's configuration is wrong: the message names the key, the line, the value, what was expected."""

    exit_code = ExitCode.USAGE


class UsageError(TorchscaleError):
    """A command-line argument is wrong."""

    exit_code = ExitCode.USAGE


class MachineError(TorchscaleError):
    """This machine lacks what the command needs."""

    exit_code = ExitCode.UNABLE


class StoreError(TorchscaleError):
    """A results directory cannot be used as asked."""

    exit_code = ExitCode.USAGE


class TraceError(TorchscaleError):
    """A recording cannot be read: it is damaged, cut off, or of a form that is not known."""

    exit_code = ExitCode.USAGE


class OutputError(TorchscaleError):
    """An output could not be written (disk full, no permission)."""

    exit_code = ExitCode.UNABLE
