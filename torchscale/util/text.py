"""Makes text from files and machines safe to print; what a program is called."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Control characters of terminals, and those that change the direction of text. Compiled where a
text may hold one: ``--help`` has none."""


def strip_control(text: str, *, keep: str = "") -> str:
    """``text`` with U+FFFD in place of each character that controls a terminal or the direction of
    text; line breaks, tabs and those in ``keep`` are kept."""
    if text.isascii() and text.isprintable():
        return text  # the fast path of nearly all texts
    return re.sub(_CONTROL, lambda match: match[0] if match[0] in keep else "\ufffd", text)


def escape_json(text: str) -> str:
    """A JSON document with escapes in place of characters that steer a terminal or that nobody
    sees: controls, changes of direction, characters without width, separators of lines and
    paragraphs. It stands for the same values."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON itself escapes the others
    return re.sub(r"[^\x00-\x7e]", _escaped, text)


_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""Letters and marks that show nothing; Python calls them printable."""


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable() and char not in _UNSEEN:
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def one_line(text: str) -> str:
    """``text`` with escapes in place of line breaks and terminal control characters."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: a path of other bytes cannot."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def shown_bytes(text: str) -> str:
    """``text`` with escapes in place of bytes that are no text, for a message."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def program_name(command: Sequence[str]) -> str:
    """``train.py`` of ``torchrun … train.py``, else the program itself."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    return script.rpartition("/")[2] or script


def ranges(numbers: Sequence[int]) -> str:
    """``0-3, 8`` of 0, 1, 2, 3, 8; empty of none."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in found)


def ranks_label(ranks: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0 and 2``, ``ranks 0, 2-7 and 9``; ``no rank`` for none."""
    parts: list[str] = []
    ordered = sorted(ranks)
    start = 0
    for index, rank in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == rank + 1:
            continue
        run = ordered[start : index + 1]
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += map(str, run)
        start = index + 1
    if not parts:
        return "no rank"
    noun = agreeing(ordered, "rank", "ranks")
    if len(parts) == 1:
        return f"{noun} {parts[0]}"
    return f"{noun} {', '.join(parts[:-1])} and {parts[-1]}"


def agreeing(ranks: Sequence[int], singular: str, plural: str) -> str:
    """The form of a word that agrees with the number of ranks."""
    if len(ranks) == 1:
        return singular
    return plural
