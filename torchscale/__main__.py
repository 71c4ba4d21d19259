"""``python -m torchscale`` is the same program as ``torchscale``."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading


def run() -> None:
    """Run the program. Ctrl-C ends it also while its modules are imported, and without a
    traceback."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell has it in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Until a command begins (``cli/main.py`` enables it then): what is imported stays, and the
    # collector would go over it again and again.
    gc.disable()
    from torchscale.cli.main import main  # noqa: PLC0415 - takes some tenths of a second

    try:
        main()
    except SystemExit as ending:
        if isinstance(ending.code, int) and not _has_other_threads():
            _leave(ending.code)
        raise


def _has_other_threads() -> bool:
    """Whether threads are still at work that the end of Python would wait for."""
    return any(
        not thread.daemon
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
    )


def _leave(status: int) -> None:
    """End the process, with all that a regular end does but one thing: modules and objects are not
    taken apart, which takes a tenth of a second, and longer the more there are. Returns where output
    could not be written: a regular end says so."""
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(status)


if __name__ == "__main__":
    run()
