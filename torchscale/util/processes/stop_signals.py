"""By which signals a user ends a command. A module without ctypes: every command imports it, and
``--help`` needs little else."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Signals by which a user ends a command: Ctrl-C, TERM and HUP, but those that are ignored, as
    ``nohup`` has HUP, and a shell Ctrl-C for what it starts in the background."""
    all_of_them = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return tuple(one for one in all_of_them if signal.getsignal(one) is not signal.SIG_IGN)
