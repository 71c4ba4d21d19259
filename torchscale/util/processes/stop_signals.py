"""By which signals a user ends a command. A module without ctypes: every command imports it, and
``--help`` needs little else."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Signals by which a user ends a command: Ctrl-C, TERM, and HUP unless it is ignored, as
    ``nohup`` has it."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,)))
