"""Words of messages: nouns by number, lists, ranges, brackets."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence


def plural(count: int, noun: str) -> str:
    """``1 cell``, ``2 cells``, ``2 launches``, ``2 epochs``, ``2 series``."""
    if count == 1 or noun.endswith("series"):
        return f"{count:,} {noun}"
    if noun.endswith(("nch", "tch", "s")):
        return f"{count:,} {noun}es"
    return f"{count:,} {noun}s"


def by_count(count: int, one: str, several: str) -> str:
    """The word for one, such as ``is``, or for another number, such as ``are``."""
    if count == 1:
        return one
    return several


def and_others(count: int, noun: str = "other cell") -> str:
    """`` and 2 other cells``, after what was named; empty without any."""
    if count < 1:
        return ""
    return f" and {plural(count, noun)}"


def capped(labels: Sequence[str], limit: int, rest: str = "{} more") -> list[str]:
    """The first ``limit`` labels, then how many more there are in the words of ``rest``."""
    more = len(labels) - limit
    if more < 1:
        return list(labels)
    return [*labels[:limit], rest.format(more)]


def in_brackets(text: str) -> str:
    """`` (text)``, after what it explains; empty without a text."""
    if not text:
        return ""
    return f" ({text})"


def format_range(
    values: Sequence[float], format_value: Callable[[float], str], before: str = ""
) -> str:
    """``median 12.0 ms to 45.1 ms``; one value where the ends look alike, nothing without any."""
    if not values:
        return ""
    return before + from_to(format_value(min(values)), format_value(max(values)))


def from_to(low: str, high: str) -> str:
    """``12.0 ms to 45.1 ms``; one text where both are alike."""
    if low == high:
        return low
    return f"{low} to {high}"


def listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def within_sentence(title: str) -> str:
    """``Idle GPUs`` → ``idle GPUs``."""
    return f"{title[:1].lower()}{title[1:]}"


def sentence(text: str) -> str:
    """``raise the batch size`` → ``Raise the batch size.``"""
    return f"{text[:1].upper()}{text[1:]}."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or nothing. Capitals, ``-`` and ``_`` make no difference, nor dashes
    in front."""
    names = {folded(name): name for name in known}
    near = difflib.get_close_matches(folded(word), names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {names[near[0]]!r}?"
    return ""


def folded(word: str) -> str:
    return word.casefold().replace("_", "-").lstrip("-")
