"""Colours distinguishable by colour-blind readers (Okabe and Ito, 2008), each with a marker."""

from __future__ import annotations

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
PLOTLY_MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross")
MATPLOTLIB_MARKERS = ("o", "s", "D", "^", "X", "v", "P")
REFERENCE_COLOUR = "#888888"
TIMELINE_COLOURS = ("#0072B2", "#D55E00", "#CC79A7", "#E69F00")


def style_index(number: int) -> int:
    """Where the ``number``-th series finds its colour and marker."""
    return number % len(COLOURS)
