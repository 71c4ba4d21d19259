"""``python -m torchscale`` is the same program as ``torchscale``."""

from __future__ import annotations

import gc
import os
import signal
import sys


def run() -> None:
    """Run the program. Ctrl-C ends it also while its modules are imported, and without a
    traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Until a command begins (``cli/main.py`` enables it then): what is imported stays, and the
    # collector would go over it again and again.
    gc.disable()
    from torchscale.cli.main import main  # noqa: PLC0415 - takes some tenths of a second

    try:
        main()
    except SystemExit as ending:
        if gc.isenabled() or ending.code:
            raise
        # Help or the version, and all of it is written: taking every module apart would take a
        # tenth as long again.
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    run()
