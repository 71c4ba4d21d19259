"""Help texts from docstrings: a paragraph's line breaks do not reach the terminal, which wraps to its own width."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def help_of(function: Callable[..., object] | None) -> str | None:
    """The docstring of a command, one line per paragraph; ``None`` without one."""
    docstring = inspect.getdoc(function) if function is not None else None
    return None if docstring is None else "\n\n".join(map(_joined, docstring.split("\n\n")))


def _joined(paragraph: str) -> str:
    """In one line, unless it is indented as code is."""
    return paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())
