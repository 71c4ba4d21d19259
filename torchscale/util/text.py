"""Makes text from files and machines safe to print."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters of terminals, and those that change the direction of text."""


def strip_control(text: str) -> str:
    """``text`` with U+FFFD in place of each character that controls a terminal or the direction of text; line breaks
    and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text  # the fast path of nearly all texts
    return _CONTROL.sub("\ufffd", text)
