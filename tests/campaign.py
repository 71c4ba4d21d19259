"""Whether long lists of cases run whole (``make campaign``) or shortened (``make test``), and the
table of faults that a campaign prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

WHOLE = bool(os.environ.get("TORCHSCALE_CAMPAIGN"))


def cases(always: Sequence[T], campaign: Sequence[T]) -> list[T]:
    """The cases of every run and, in a campaign, those that take the same paths once more."""
    return [*always, *(campaign if WHOLE else ())]


FAULT_TABLE = Path(__file__).parents[1] / "build" / "faults.md"
"""The table of the last campaign, with texts of any length."""
FAULT = "fault"
"""Name of the property of a test that holds a row of the table."""
_HEADINGS = ("fault", "how injected", "expected", "seen", "time")
_WIDTH = 60
"""Characters of a column: five of them fit a wide terminal."""


def tell_fault(
    record: Callable[[str, object], None], fault: str, how: str, expected: str, seen: str
) -> None:
    """Add a row to the table of faults; ``record`` is pytest's ``record_property``."""
    record(FAULT, [fault, how, expected, " ".join(seen.split())])


def fault_table(rows: Iterable[tuple[Sequence[str], float]]) -> list[str]:
    """Lines of the table: each fault once, with the seconds of its test."""
    texts = [
        _HEADINGS,
        *(
            (*row, f"{seconds:.0f} s")
            for row, seconds in sorted(rows, key=lambda item: tuple(item[0]))
        ),
    ]
    cut = [
        [text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…" for text in row] for row in texts
    ]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cut
    ]


def markdown_fault_table(rows: Iterable[tuple[Sequence[str], float]]) -> str:
    """The same as Markdown, uncut."""
    lines = [_HEADINGS, ["---"] * len(_HEADINGS)]
    lines += [
        [*row, f"{seconds:.0f} s"] for row, seconds in sorted(rows, key=lambda item: tuple(item[0]))
    ]
    return "".join(
        "| " + " | ".join(text.replace("|", "\\|") for text in line) + " |\n" for line in lines
    )
