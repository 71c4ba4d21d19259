"""Values as reports show them: their text, how they sort, and what their tone means."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeVar

from torchscale.util.text import strip_control

T = TypeVar("T")


class Tone(str, Enum):
    """The meaning of a value; renderers must not show it by colour only."""

    PLAIN = "plain"
    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    DIM = "dim"


MAX_TEXT = 600
"""Longer texts are cut: a megabyte in one line would take minutes to lay out."""


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """``text`` for people: cut with an ellipsis where it is longer than ``limit``, and without what
    controls a terminal or the direction of writing."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return strip_control(cut)


def shortened_in_middle(text: str, limit: int) -> str:
    """``text`` with an ellipsis for its middle where it is longer than ``limit``: names often begin
    alike, and paths end in what tells them apart."""
    if len(text) <= limit:
        return text
    end = max(0, limit - 1) // 2
    return f"{text[: max(0, limit - 1 - end)]}…{text[len(text) - end :]}"


class TableValue(NamedTuple):
    """A table's entry: text for people, ``sort`` for ordering (numbers before text)."""

    text: str
    sort: float | str | None = None
    tone: Tone = Tone.PLAIN


DASH = TableValue("–", None, Tone.DIM)
"""Shown where nothing was measured."""


def optional_value(number: float | None, format_number: Callable[[float], str]) -> TableValue:
    """A formatted number; – where it was not measured."""
    if number is None:
        return DASH
    return TableValue(format_number(number), number)


def optional_text(content: T | None, format_content: Callable[[T], str]) -> str:
    """A formatted content; – where it was not measured."""
    if content is None:
        return DASH.text
    return format_content(content)


def text_value(text: str, sort: float | str | None = None) -> TableValue:
    """A text; – where it is empty."""
    if not text:
        return DASH
    return TableValue(text, sort)


def caution_where(doubtful: object) -> Tone:
    """The tone of a value that is to be read with caution where something makes it doubtful."""
    if doubtful:
        return Tone.CAUTION
    return Tone.PLAIN


def only_if(condition: object, *items: T) -> tuple[T, ...]:
    """The items of a list that are in it only under a condition."""
    if condition:
        return items
    return ()
