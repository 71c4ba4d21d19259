"""The terminal: one console for results (stdout), one for messages and progress (stderr)."""

from __future__ import annotations

import io
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from torchscale.util.text import escape_json, strip_control

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from torchscale.errors import TorchscaleError

FIRST_LINE_SECONDS = 1.0
"""A wait that takes longer is announced: after two seconds of silence people think that a program
hangs."""
_LINE_SECONDS = 10.0
"""Seconds between two lines of one wait in a log: CI systems and people look at logs about that
often."""


@dataclass
class _Verbosity:
    verbose: bool = False
    quiet: bool = False


_verbosity = _Verbosity()
_live: list[Console] = []
"""The console of the running spinner or bar: lines printed to it do not tear it."""


def configure_output(*, verbose: bool, quiet: bool) -> None:
    """Set how much the commands say, for the rest of the process."""
    _verbosity.verbose, _verbosity.quiet = verbose, quiet


def replace_unprintable() -> None:
    """Show what the terminal's encoding lacks (``–`` in ASCII) as ``?``, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def raise_verbosity(*, verbose: bool, quiet: bool) -> None:
    """Apply ``--verbose`` and ``--quiet`` after the command's name: they add to those before it."""
    _verbosity.verbose |= verbose
    _verbosity.quiet |= quiet


def is_quiet() -> bool:
    """Whether ``--quiet`` was given."""
    return _verbosity.quiet


def result_console() -> Console:
    """The console for what the command was asked for (stdout); a pipe or file gets plain text
    without colour."""
    return _console(stderr=False)


def message_console() -> Console:
    """The console for progress, notes and errors (stderr), so that results can be piped."""
    if _live:
        return _live[-1]
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console  # noqa: PLC0415 - `--help` and `--version` do not need it
    from rich.text import Text  # noqa: PLC0415

    from torchscale.util.redaction import redact_text, secret_values  # noqa: PLC0415 - compiles many patterns

    class PrintableConsole(Console):
        """Names and messages come from files and other programs: none of them may steer the
        terminal or show a secret."""

        _secrets: tuple[str, ...] | None = None

        def print(self, *objects: Any, **how: Any) -> None:  # noqa: ANN401 - as rich has it
            # Once, and not for each text of a table of 10,000 rows: it reads the environment.
            self._secrets = secret_values()
            try:
                super().print(*objects, **how)
            finally:
                self._secrets = None

        def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 - as rich has it
            return super().render_str(strip_control(redact_text(text, self._secrets)), **how)

    return PrintableConsole(stderr=stderr, highlight=False, emoji=False)


def note(text: str) -> None:
    """One line on the way, unless ``--quiet``."""
    if not _verbosity.quiet:
        message_console().print(text, markup=False, soft_wrap=True)


def detail(text: str) -> None:
    """One line that only ``--verbose`` shows."""
    if _verbosity.verbose:
        message_console().print(text, markup=False, style="dim", soft_wrap=True)


def print_json(text: str) -> None:
    """A JSON document on standard output: the only way there, so that none steers the terminal."""
    typer.echo(escape_json(text.removesuffix("\n")))


def print_error(error: TorchscaleError) -> None:
    """``error: …`` and, where there is one, ``hint: …``; never a traceback."""
    console = message_console()
    console.print("[bold red]error:[/bold red] ", end="")
    console.print(error.message, markup=False, soft_wrap=True)
    if error.hint:
        from rich.text import Text  # noqa: PLC0415 - as above

        from torchscale.util.redaction import hide_secrets  # noqa: PLC0415

        console.print("[bold]hint:[/bold] ", end="")
        # As we wrote it, which a Text is that the console leaves alone.
        console.print(Text(strip_control(hide_secrets(error.hint))), soft_wrap=True)


@contextmanager
def live_console(console: Console) -> Iterator[None]:
    """Messages go to ``console``, where something is drawn anew all the time, until it ends."""
    _live.append(console)
    try:
        yield
    finally:
        _live.pop()


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Says that something takes a moment: a spinner with the time on a terminal, else a line after
    a second and then one every ten seconds; nothing with ``--quiet``. Gives what changes the
    text."""
    console = message_console()
    if _verbosity.quiet or _live:
        yield lambda _: None
    elif console.is_terminal:
        with _spinner(console, text) as say:
            yield say
    else:
        with _lines(text) as say:
            yield say


@contextmanager
def _spinner(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(text, total=None)
        with live_console(console):
            yield lambda now: progress.update(task, description=now)


@contextmanager
def _lines(text: str) -> Iterator[Callable[[str], None]]:
    done = threading.Event()
    said = text

    def say(now: str) -> None:
        nonlocal said
        said = now

    started = time.monotonic()

    def speak() -> None:
        wait = FIRST_LINE_SECONDS
        while not done.wait(wait):
            seconds = time.monotonic() - started
            taken = "" if wait == FIRST_LINE_SECONDS else f" {seconds:.0f} s"
            note(f"{said} …{taken}")
            wait = _LINE_SECONDS

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield say
    finally:
        done.set()
        speaker.join()


class TerminalObserver:
    """Shows on stderr what a command reports while it runs; ``--quiet`` and ``--verbose`` decide
    how much."""

    def status(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """A spinner, or lines in a log."""
        return status(text)

    def note(self, text: str) -> None:
        """A line, unless ``--quiet``."""
        note(text)

    def detail(self, text: str) -> None:
        """A line with ``--verbose``."""
        detail(text)

    def results(self, directory: Path) -> None:
        """Where the results are, and the next command."""
        note(f"Results: {directory}. Next: torchscale report {shlex.quote(str(directory))}")


TERMINAL = TerminalObserver()
