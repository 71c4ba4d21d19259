"""Sentences on the terminal: their colours, and where they may be broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from torchscale.report.values import Tone
from torchscale.util.text import strip_control

STYLES: Mapping[Tone, str] = MappingProxyType(
    {
        Tone.PLAIN: "",
        Tone.GOOD: "color(28)",
        Tone.CAUTION: "color(130)",
        Tone.BAD: "bold color(160)",
        Tone.DIM: "color(243)",
    }
)
"""Of middle brightness: a contrast of at least 3.9 with a white and with a black background."""
_BOUND = re.compile(r"(?<=\d) (?=\S{1,9}(?: |$))")
"""Between a number and a short word behind it, such as its unit."""
_COMMAND = re.compile(r"`[^`\n]{1,100}`|(?<=: )torchscale (?:(?![.:] )[^\n])*\Z")
"""Copied whole: in backticks, or from a colon to the end."""
_NO_BREAK = "\0"
_ITEM = re.compile(r" *(?:- |\d+\. )?")
"""Before the text of a line: lines that it is broken into begin below its first word."""


def say(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print a sentence: broken between words on a terminal, whole in a file or pipe. Lines after
    its first begin with ``indent`` spaces."""
    for line in sentence_lines(text, console, style, indent):
        console.print(line, soft_wrap=True)


def verbatim(console: Console, text: str, style: str = "") -> None:
    """Print lines as they are, however long."""
    console.print(text, style=style or None, markup=False, soft_wrap=True)


def sentence_lines(text: str, console: Console, style: str = "", indent: int = 0) -> Iterator[Text]:
    """The lines of :func:`say`."""
    for line in broken(plain_text(text, console), console, indent):
        yield Text(line, style)


def broken(plain: str, console: Console, indent: int = 0) -> list[str]:
    """Lines of a text that has no secrets and steers no terminal, as :func:`say` prints them."""
    # Whatever COLUMNS says: readline exports it, so that all that pytest or a shell of Python starts
    # has it, and who reads a pipe looks for whole sentences.
    if not console.is_terminal:
        return [plain]
    return [line for part in plain.split("\n") for line in _broken_line(part, console, indent)]


def _broken_line(plain: str, console: Console, indent: int) -> Iterator[str]:
    indent += len(_ITEM.match(plain)[0])  # type: ignore[index]  # the empty string matches
    bound = _COMMAND.sub(lambda found: found[0].replace(" ", _NO_BREAK), plain)
    first, *others = wrapped(words_of(bound), console.width - indent, indent)
    yield first
    yield from (" " * indent + other for other in others)


def plain_text(text: str, console: Console) -> str:
    """The text as the console shows it: without secrets, and without what steers a terminal."""
    shown = console.render_str(text, markup=False, emoji=False, highlight=False).plain
    return strip_control(shown)


def words_of(text: str) -> list[str]:
    """What is not broken: words, and numbers with their units."""
    return [word.replace(_NO_BREAK, " ") for word in _BOUND.sub(_NO_BREAK, text).split(" ")]


def wrapped(pieces: Sequence[str], width: int, more_in_first: int = 0) -> list[str]:
    """Lines of at most ``width`` columns, unless a piece is longer."""
    lines: list[str] = []
    for piece in pieces:
        room = width + more_in_first * (len(lines) == 1)
        if lines and cell_len(lines[-1]) + 1 + cell_len(piece) <= room:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines
