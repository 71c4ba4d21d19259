"""Legends of matplotlib's axes and names beside them: however long they are, they stay within the
drawing and leave room for the data."""

from __future__ import annotations

from typing import Any

from torchscale.report.values import shortened_in_middle

_FONT, _NAME_FONT = 6, 7
"""Points of a legend and of names beside the axes."""
_CHARACTER = 0.6
"""Width of a character, of its font's size: a little more than the mean of DejaVu Sans."""
_MARK = 20
"""Points of an entry beside its name: the mark, and the space to the next entry."""
_LINE = 11
"""Points of a line of a legend."""
_TITLE_FONT = 7.5
_NAMES_SHARE = 0.42
"""Of the width, for names beside the axes: more is left for the data."""
_BESIDE_SHARE = 0.55
"""Of the width, for a legend right of bars, which are few and narrow."""
_TICK = 10
"""Points between a name and the axes."""
_Y_AXIS = 50
"""Points of the numbers and the label of a y axis, right of which a legend above it begins."""


def shown_names(axes: Any, names: tuple[str, ...]) -> list[str]:  # noqa: ANN401 - matplotlib is not typed here
    """Names of rows as there is room for them, left of the axes."""
    limit = int(_NAMES_SHARE * _points(axes) / (_CHARACTER * _NAME_FONT))
    return [shortened_in_middle(name, limit) for name in names]


def legend_above(axes: Any, names: list[str] | None = None) -> None:  # noqa: ANN401 - see shown_names
    """Place the legend between title and data, which leave no corner free; above the ``names`` left
    of the axes too, where there are any."""
    from matplotlib.transforms import ScaledTranslation  # noqa: PLC0415 - 0.4 s, and only charts need it

    left, room = 0.0, _points(axes) - _Y_AXIS
    if names:
        left = _width(max(names, key=len), _NAME_FONT) + _TICK
        room = _points(axes) - _TICK
    handles, texts = axes.get_legend_handles_labels()
    texts = _within(texts, room)
    columns = _columns(texts, room)
    by_rows = [place for column in range(columns) for place in range(column, len(texts), columns)]
    moved = ScaledTranslation(-left / 72, 0, axes.figure.dpi_scale_trans)
    axes.legend(
        [handles[place] for place in by_rows],
        [texts[place] for place in by_rows],
        frameon=False,
        fontsize=_FONT,
        ncols=columns,
        loc="lower left",
        borderpad=0,
        bbox_to_anchor=(0, 1.0),
        bbox_transform=axes.transAxes + moved,
        columnspacing=1.2,
        handlelength=1.2,
    )
    lines = -(-len(texts) // columns)
    text, pad = axes.get_title(loc="left"), 6 + _LINE * lines
    title = axes.set_title(text, fontsize=_TITLE_FONT, loc="left", pad=pad)
    title.set_transform(title.get_transform() + moved)


def legend_inside(axes: Any, row: str, column: str) -> None:  # noqa: ANN401 - see shown_names
    """Place the legend in a corner of the axes: what was measured, then the dashed lines."""
    entries = zip(*axes.get_legend_handles_labels(), strict=True)
    ordered = sorted(entries, key=lambda entry: entry[0].get_linestyle() == "--")
    vertical = {"top": "upper", "bottom": "lower"}[row]
    axes.legend(
        [handle for handle, _ in ordered],
        _within([name for _, name in ordered], _points(axes) - _Y_AXIS - _MARK),
        fontsize=_FONT,
        loc=f"{vertical} {column}",
        facecolor="#ffffff",
        framealpha=0.8,
        edgecolor="none",
        borderpad=0.2,
    )


def legend_beside(axes: Any) -> None:  # noqa: ANN401 - see shown_names
    """Place the legend right of bars."""
    handles, names = axes.get_legend_handles_labels()
    axes.legend(
        handles,
        _within(names, _BESIDE_SHARE * _points(axes)),
        frameon=False,
        fontsize=_FONT,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        borderpad=0,
    )


def _columns(names: list[str], room: float) -> int:
    """How many entries there is room for in a row."""
    for columns in range(len(names), 1, -1):
        widths = (max(map(_entry_width, names[column::columns])) for column in range(columns))
        if sum(widths) <= room:
            return columns
    return 1


def _within(names: list[str], room: float) -> list[str]:
    """Names of entries, each of at most the room."""
    limit = int((room - _MARK) / (_CHARACTER * _FONT))
    return [shortened_in_middle(name, limit) for name in names]


def _entry_width(name: str) -> float:
    return _MARK + _width(name, _FONT)


def _width(text: str, font: int) -> float:
    return _CHARACTER * font * len(text)


def _points(axes: Any) -> float:  # noqa: ANN401 - see shown_names
    """Width of the drawing."""
    return float(axes.figure.get_figwidth()) * 72
