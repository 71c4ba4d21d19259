"""The terminal of commands that run a sweep: launches as a bar or as lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchscale.cli.output import (
    TerminalObserver,
    detail,
    is_quiet,
    live_console,
    message_console,
)

if TYPE_CHECKING:
    from torchscale.config.choices import DeviceKind
    from torchscale.measure.listener import Listener


class SweepTerminal(TerminalObserver):
    """Also shows the launches of a sweep."""

    @contextmanager
    def launches(self, device: DeviceKind, total: int, repeats: int) -> Iterator[Listener]:
        """A progress bar on a terminal, else a line per launch; nothing with ``--quiet``."""
        from torchscale.measure.listener import SilentListener  # noqa: PLC0415
        from torchscale.report.terminal.live import live_view  # noqa: PLC0415 - `--help` does not need it

        if is_quiet():
            yield SilentListener()
            return
        console = message_console()
        with live_view(console, device, total, repeats, detail) as view, live_console(console):
            yield view


SWEEP_TERMINAL = SweepTerminal()
