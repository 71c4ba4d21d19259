"""Text from files and machines, made safe to show."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What steers a terminal, or turns the order of what is read around."""


def printable(text: str) -> str:
    """``text`` with a replacement character for each one that controls a terminal or the direction of writing; line
    breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text  # nearly all of them
    return _CONTROL.sub("\ufffd", text)
