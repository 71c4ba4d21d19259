"""Files that list the lengths of documents."""

from __future__ import annotations

MAX_LENGTHS = 1_000_000
"""Different lengths of a file: more than any corpus has, and a second of reading."""
MAX_LENGTH = 100_000_000
"""Tokens of a document; a book has 10⁵ to 10⁶."""
LEAST = 2
"""Tokens of the shortest document: each but the first is predicted from those before it."""


def parse_lengths(text: str) -> dict[int, int]:
    """Length → how often it occurs, from lines with a length, or a length and a number of
    documents, with spaces, a tab or a comma between; ``#`` begins a comment.

    Raises:
        ValueError: a line is not one of these, or there is none; the text names it.
    """
    counts: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        length, count = _numbers(words, f"line {number}")
        counts[length] = counts.get(length, 0) + count
        if len(counts) > MAX_LENGTHS:
            raise ValueError(f"line {number}: more than {MAX_LENGTHS:,} different lengths")
    if not counts:
        raise ValueError("it lists no lengths")
    return counts


def _numbers(words: list[str], where: str) -> tuple[int, int]:
    expected = "a length in tokens, and how often it occurs if more than once"
    if len(words) > 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"{where}: {' '.join(words)[:40]!r} is not {expected}")
    length, count = int(words[0][:20]), int((*words, "1")[1][:20])
    if not LEAST <= length <= MAX_LENGTH:
        raise ValueError(f"{where}: length {words[0][:20]} is not from {LEAST} to {MAX_LENGTH:,}")
    if not 1 <= count <= 10**12:
        raise ValueError(f"{where}: {words[1][:20]} documents are not from 1 to 10¹²")
    return length, count
