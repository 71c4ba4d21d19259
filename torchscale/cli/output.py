"""The terminal: one console for results (stdout), one for messages and progress (stderr)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchscale.util.text import strip_control

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from torchscale.config.choices import DeviceKind
    from torchscale.errors import TorchscaleError
    from torchscale.run.observer import Listener


@dataclass
class _Verbosity:
    verbose: bool = False
    quiet: bool = False


_verbosity = _Verbosity()


def configure_output(*, verbose: bool, quiet: bool) -> None:
    """Set how much the commands say, for the rest of the process."""
    _verbosity.verbose, _verbosity.quiet = verbose, quiet


def is_quiet() -> bool:
    """Whether ``--quiet`` was given."""
    return _verbosity.quiet


def result_console() -> Console:
    """For what the command was asked for; a pipe or file gets plain text without colour."""
    return _console(stderr=False)


def message_console() -> Console:
    """For progress, notes and errors, so that results can be piped."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console  # noqa: PLC0415 - `--help` and `--version` do not need it
    from rich.text import Text  # noqa: PLC0415

    class PrintableConsole(Console):
        """Names and messages come from files and other programs: none of them may steer the terminal."""

        def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 - as rich has it
            return super().render_str(strip_control(text), **how)

    return PrintableConsole(stderr=stderr, highlight=False, emoji=False)


def note(text: str) -> None:
    """One line on the way, unless ``--quiet``."""
    if not _verbosity.quiet:
        message_console().print(text, markup=False, soft_wrap=True)


def detail(text: str) -> None:
    """One line that only ``--verbose`` shows."""
    if _verbosity.verbose:
        message_console().print(text, markup=False, style="dim", soft_wrap=True)


def print_error(error: TorchscaleError) -> None:
    """``error: …`` and, where there is one, ``hint: …``; never a traceback."""
    console = message_console()
    console.print("[bold red]error:[/bold red] ", end="")
    console.print(error.message, markup=False, soft_wrap=True)
    if error.hint:
        console.print("[bold]hint:[/bold] ", end="")
        console.print(error.hint, markup=False, soft_wrap=True)


@contextmanager
def status(text: str) -> Iterator[None]:
    """A spinner while something takes a moment; nothing where no one watches."""
    console = message_console()
    if _verbosity.quiet or not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


class TerminalObserver:
    """Shows on stderr what a command reports while it runs; ``--quiet`` and ``--verbose`` decide how much."""

    def status(self, text: str) -> AbstractContextManager[None]:
        """A spinner."""
        return status(text)

    def note(self, text: str) -> None:
        """A line, unless ``--quiet``."""
        note(text)

    def detail(self, text: str) -> None:
        """A line with ``--verbose``."""
        detail(text)

    def results(self, directory: Path) -> None:
        """Where the results are, and the next command."""
        note(f"Results: {directory}. Next: torchscale report --source {directory}")

    def launches(self, device: DeviceKind, total: int, repeats: int) -> AbstractContextManager[Listener]:
        """A progress bar on a terminal, else a line per launch; nothing with ``--quiet``."""
        from torchscale.report.terminal.live import live_view  # noqa: PLC0415 - `--help` does not need it
        from torchscale.run.observer import SilentListener  # noqa: PLC0415

        if is_quiet():
            return nullcontext(SilentListener())
        return live_view(message_console(), device, total, repeats, detail)


TERMINAL = TerminalObserver()
