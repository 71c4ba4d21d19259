"""Lines between what a watched program writes to the same terminal."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

from torchscale.util.redaction import redact_text
from torchscale.util.text import strip_control


def write_line(text: str, stream: TextIO) -> None:
    """Write a line of its own, and leave all that stands there as it is.

    The program writes to the same terminal, and nobody knows when, or where its cursor is. A line
    that is drawn anew in place would run into the program's, and erase what a progress bar has
    drawn. So a line is written once, whole, in one call, and only now and then. Where the program
    has left a line unfinished, as progress bars do, ours begins on the next one: as many spaces as
    the terminal has columns reach the next line from everywhere but the first column, and a return
    goes back to its beginning. The bar stays above, and its next update draws it below.

    Nothing is written from the background of a shell, where it would run into what somebody types
    and can stop all processes of the job (``stty tostop``). What fails is left out.
    """
    with contextlib.suppress(OSError, ValueError):
        if not _is_in_background(stream):
            stream.write(f"{_to_next_line(stream)}{strip_control(redact_text(text))}\n")
            stream.flush()


def _to_next_line(stream: TextIO) -> str:
    """What leads to the beginning of an empty line. In a log, and on terminals that do not wrap, an
    empty line may come before ours."""
    columns = 0
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(stream.fileno()).columns
    return " " * columns + "\r" if columns else "\n"


def _is_in_background(stream: TextIO) -> bool:
    """Whether a shell has put this process into the background of its terminal."""
    if not stream.isatty():
        return False
    try:
        return os.tcgetpgrp(stream.fileno()) != os.getpgrp()
    except OSError:  # no terminal of this session: no shell either
        return False
