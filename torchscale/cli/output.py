"""The terminal: one console for results (stdout), one for messages and progress (stderr)."""

from __future__ import annotations

import io
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from torchscale.util.addresses import with_addresses
from torchscale.util.text import escape_json, strip_control

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from torchscale.errors import TorchscaleError

FIRST_LINE_SECONDS = 1.0
"""A wait that takes longer is announced: after two seconds of silence people think that a program
hangs."""
_PIPE_COLUMNS = 120
"""Width of tables where neither a terminal nor COLUMNS says one: what the logs of CI systems show
without breaking lines. rich takes 80, which has no room for a table of cells."""
_BESIDE_SPINNER = 11
"""Columns of a spinner, of the time, and of the spaces between."""
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
            shown = with_addresses(redact_text(text, self._secrets))
            return super().render_str(strip_control(shown), **how)

    # As rich looks for a terminal: `torchscale report | less` is as wide as the window.
    is_wide = "COLUMNS" in os.environ or any(map(os.isatty, range(3)))
    width = None if is_wide else _PIPE_COLUMNS
    return PrintableConsole(stderr=stderr, width=width, highlight=False, emoji=False)


def tell(text: str, style: str = "") -> None:
    """A message, with ``--quiet`` too."""
    from torchscale.report.formats.console_text import say  # noqa: PLC0415 - `--help` does not need it

    say(message_console(), text, style)


def note(text: str) -> None:
    """One line on the way, unless ``--quiet``."""
    if not _verbosity.quiet:
        tell(text)


def detail(text: str) -> None:
    """One line that only ``--verbose`` shows."""
    if _verbosity.verbose:
        tell(text, "dim")


def print_json(text: str) -> None:
    """A JSON document on standard output: the only way there, so that none steers the terminal."""
    typer.echo(escape_json(with_addresses(text.removesuffix("\n"))))


def print_error(error: TorchscaleError) -> None:
    """``error: …`` and, where there is one, ``hint: …``; never a traceback."""
    from torchscale.report.formats.console_text import plain_text  # noqa: PLC0415 - `--help` does not need it
    from torchscale.util.redaction import hide_secrets  # noqa: PLC0415

    _print_named("error:", plain_text(error.message, message_console()), "bold red")
    if error.hint:
        # Of our own words, in which less is taken for a secret.
        _print_named("hint:", strip_control(with_addresses(hide_secrets(error.hint))), "bold")


def _print_named(name: str, plain: str, style: str) -> None:
    from rich.text import Text  # noqa: PLC0415 - as above

    from torchscale.report.formats.console_text import broken  # noqa: PLC0415

    console = message_console()
    for number, line in enumerate(broken(f"{name} {plain}", console)):
        shown = Text(line)
        if number == 0:
            shown.stylize(style, 0, len(name))
        console.print(shown, soft_wrap=True)


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
    from rich.progress import Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class OneLine(TextColumn):
        """Cut where the line ends: what is drawn anew ten times a second has no room for two."""

        def render(self, task: Task) -> Text:
            shown = super().render(task)
            shown.truncate(max(1, console.width - _BESIDE_SPINNER), overflow="ellipsis")
            return shown

    columns = (SpinnerColumn(), OneLine("{task.description}", markup=False), TimeElapsedColumn())
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
