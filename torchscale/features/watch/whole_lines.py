"""Lines between what a watched program writes to the same terminal."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

from torchscale.report.formats.console_text import words_of, wrapped
from torchscale.util.redaction import redact_text
from torchscale.util.text import strip_control


def write_line(text: str, stream: TextIO) -> None:
    """Write a line of its own, and leave all that stands there as it is.

    The program writes to the same terminal, and nobody knows when, or where its cursor is. A line
    that is drawn anew in place would run into the program's, and erase what a progress bar has
    drawn. So a line is written once, whole, in one call, and only now and then. Where the program
    has left a line unfinished, as progress bars do, ours begins on the next one: as many spaces as
    the terminal has columns reach the next line from everywhere but the first column, and a return
    goes back to its beginning. The bar stays above, and its next update draws it below. A text that
    is longer than a line is broken between words: a terminal would break it anywhere.

    Nothing is written from the background of a shell, where it would run into what somebody types
    and can stop all processes of the job (``stty tostop``). What fails is left out.
    """
    with contextlib.suppress(OSError, ValueError):
        if not _is_in_background(stream):
            shown, columns = strip_control(redact_text(text)), _columns(stream)
            # In a log, and on terminals that do not wrap, an empty line may come before ours.
            to_next_line = "\n"
            if columns:
                to_next_line = " " * columns + "\r"
                shown = "\n".join(wrapped(words_of(shown), columns))
            stream.write(f"{to_next_line}{shown}\n")
            stream.flush()


def _columns(stream: TextIO) -> int:
    """Columns of a terminal that wraps lines; 0 in a log, and of others."""
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        with contextlib.suppress(OSError):
            return os.get_terminal_size(stream.fileno()).columns
    return 0


def _is_in_background(stream: TextIO) -> bool:
    """Whether a shell has put this process into the background of its terminal."""
    if not stream.isatty():
        return False
    try:
        return os.tcgetpgrp(stream.fileno()) != os.getpgrp()
    except OSError:  # no terminal of this session: no shell either
        return False
