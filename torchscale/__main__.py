"""``python -m torchscale`` is the same program as ``torchscale``."""

from __future__ import annotations

import signal


def run() -> None:
    """Run the program. Ctrl-C ends it also while its modules are imported, and without a
    traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from torchscale.cli.main import main  # noqa: PLC0415 - takes some tenths of a second

    main()


if __name__ == "__main__":
    run()
