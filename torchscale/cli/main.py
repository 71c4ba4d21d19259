"""The program: global options, and the one place where errors become messages and exit codes.

Nothing here imports pandas, plotly or torch; each command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, TextIO

import typer

from torchscale.cli.command_table import Program
from torchscale.cli.output import configure_output, note, print_error, replace_unprintable
from torchscale.cli.parameters import option
from torchscale.cli.shared_options import QuietOption, VerboseOption, finish_commands
from torchscale.cli.start import print_start
from torchscale.errors import (
    ExitCode,
    FileSystemError,
    MachineError,
    OutputError,
    ProgramExit,
    TorchscaleError,
    UsageError,
)
from torchscale.util.extras import missing_extra
from torchscale.util.processes.stop_signals import stop_signals
from torchscale.util.text import is_text, shown_bytes
from torchscale.version import __version__

app = typer.Typer(
    name="torchscale",
    cls=Program,
    invoke_without_command=True,
    rich_markup_mode=None,  # typer would import its own layout of help; see cli/help.py
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Is this GPU node fit, how well does training scale on it, and what holds it back.\n\n"
        "Start with [bold]torchscale validate[/bold], then [bold]torchscale init[/bold], "
        "[bold]torchscale benchmark[/bold] and [bold]torchscale report[/bold]."
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"torchscale {__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    context: typer.Context,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    version: Annotated[
        bool,
        option("--version", "Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Apply the options that every command has."""
    del version
    gc.enable()  # see torchscale/__main__.py
    configure_output(verbose=verbose, quiet=quiet)
    if context.invoked_subcommand is None:
        print_start()


finish_commands(app)


_NO_MEMORY = ("failed to map segment", "Cannot allocate memory")
"""Messages of the dynamic linker, and of the kernel."""
_OUTPUT_FAILS = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT)
"""Errors of writing to what standard output leads to."""
_SERVER_FAILS = (errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EREMOTEIO)
"""Errors of a mount whose server is gone, where the file was open already."""


class _Interrupted(BaseException):
    """Ctrl-C or TERM. Not a KeyboardInterrupt: click would turn that into exit code 1.

    Attributes:
        raised: Whether one was raised since the program began.
    """

    raised = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    _Interrupted.raised = True
    raise _Interrupted


def _refuse_broken_text() -> None:
    """Records are UTF-8 text: a path of other bytes cannot be written into them. A program that is
    watched gets its arguments as they are.

    Raises:
        UsageError: an argument, or the working directory, holds such bytes.
    """
    arguments = sys.argv[1:]
    if "watch" in arguments and "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    for argument in arguments:
        if not is_text(argument):
            raise UsageError(
                f"{shown_bytes(argument)}: not text in the encoding of this terminal "
                f"({sys.getfilesystemencoding()})",
                hint="set LC_ALL=C.UTF-8, or rename the file",
            )
    try:
        directory = str(Path.cwd())
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}", hint="cd to another one"
        ) from error
    if not is_text(directory):
        raise UsageError(
            f"the working directory {shown_bytes(directory)} has a name that is not UTF-8 text",
            hint="cd to another one",
        )


def _name_left_processes() -> None:
    """What a model has started may outlive the command."""
    if "torchscale.util.processes.subprocesses" not in sys.modules:  # nothing was started
        return
    from torchscale.measure.left_processes import left_process_warnings  # noqa: PLC0415 - most commands start nothing

    for warning in left_process_warnings():
        note(warning)


def _refuse_another_package() -> None:
    """The modules of ours that are here would run, but nothing that asks the package itself for a
    name.

    Raises:
        MachineError: ``torchscale/__init__.py`` is another project's, or is missing.
    """
    package = sys.modules["torchscale"]
    if hasattr(package, "__version__"):
        return
    from torchscale.util.namesake import replaced_package  # noqa: PLC0415 - reads all that is installed

    raise replaced_package(package)


def _flush() -> None:
    """What cannot be written is an error here, and not when the interpreter ends."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _write_what_can_be() -> None:
    """Nothing that fails here may change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                _discard(stream)


def _discard(stream: TextIO | None) -> None:
    """Python must not fail again when it flushes at exit."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _typed() -> list[str]:
    """The command line without ``--token-secret``, whose value is a name."""
    words = sys.argv[1:]
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before != "--token-secret" and not word.startswith("--token-secret")
    ]


def _leave_with(error: TorchscaleError) -> NoReturn:
    """Print it, where that is possible, and exit with its code."""
    from torchscale.util.redaction import note_arguments  # noqa: PLC0415 - compiles many patterns

    note_arguments(_typed())
    with contextlib.suppress(OSError):
        print_error(error)
    _write_what_can_be()
    sys.exit(error.exit_code)


def _lacks_memory(error: BaseException) -> bool:
    """Whether it, or what it came of, is a lack of memory; libraries fail to be loaded for it with
    an ImportError."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, MemoryError) or any(words in str(chain) for words in _NO_MEMORY):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def no_memory(error: BaseException) -> MachineError:
    """What a lack of memory is to a user."""
    return MachineError(
        f"not enough memory: {str(error) or type(error).__name__}",
        hint="raise the limit of address space (ulimit -v) or of the container",
    )


def main() -> None:
    """Run the program and leave with its exit code."""
    try:
        _run()
    except Exception as error:
        if not _lacks_memory(error):
            raise
        _leave_with(no_memory(error))


def _run_command() -> None:
    """Run the command that was typed.

    Raises:
        ProgramExit: it has run a program, whose exit code this is.
    """
    _refuse_another_package()
    _refuse_broken_text()
    try:
        app()
    except ProgramExit:
        _write_what_can_be()
        raise
    finally:
        _name_left_processes()
        _flush()


def _run() -> None:
    _Interrupted.raised = False
    replace_unprintable()
    for number in stop_signals():
        signal.signal(number, _interrupt)
    try:
        _run_command()
    except TorchscaleError as error:
        _leave_with(error)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        _leave_with(missing)
    except _Interrupted:
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _discard(sys.stdout)  # its reader (head, less) has closed the pipe
        sys.exit(ExitCode.FAILED)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            path = str(error.filename)
            _leave_with(
                UsageError(
                    f"{path[:60]}…: no file can have a name or a path so long ({len(path)} "
                    "characters)"
                )
            )
        if error.filename is not None or error.errno in _SERVER_FAILS:
            _leave_with(FileSystemError.of(error))
        if error.errno not in _OUTPUT_FAILS:
            raise
        _discard(sys.stdout)
        _leave_with(
            OutputError(
                f"cannot write the output: {error.strerror}", hint="free space, or write elsewhere"
            )
        )
    except Exception:
        if (
            _Interrupted.raised
        ):  # and wrapped by a library in its own error, as by pydantic while it builds a model
            sys.exit(ExitCode.INTERRUPTED)
        raise
