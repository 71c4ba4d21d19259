"""What is slowest in a fleet: rankings of nodes and links, and of the figures of all nodes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from torchscale.features.validate.acceptance.verdict import format_value
from torchscale.features.validate.fleet.fleet import rail_name
from torchscale.report.document import Block, Paragraph
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, only_if
from torchscale.schema.node.fleet import FleetFigure, FleetSpeeds, Pairwise, Slowness
from torchscale.schema.node.validation import Disposition
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_bytes, format_percent, format_seconds
from torchscale.util.words import plural

_MOST_SHARE = 1000.0
"""A thousand times as long is no estimate."""
_MAX_RANKED = 10
"""Nodes and links of the ranking, the slowest first; ``--json`` has all."""


def pairwise_blocks(pairwise: Pairwise, labels: Mapping[int, str]) -> Iterator[Block]:
    """The slowest nodes and links of one measurement of all pairs, and its verdict."""
    caption = (
        f"all pairs: {plural(len(pairwise.pairs), 'all-reduce')} of "
        f"{format_bytes(pairwise.message_bytes)} over {pairwise.backend}{rail_name(pairwise)}"
    )
    ranked = sorted((*pairwise.nodes, *pairwise.links), key=lambda each: -each.share)
    rows = [_slowness_row(each, labels) for each in ranked[:_MAX_RANKED]]
    if rows:
        yield _ranking(caption, ("node or link",), ("more time", "95 % interval"), rows)
    else:
        yield Paragraph(caption)
    lines = [*only_if(len(ranked) > _MAX_RANKED, _faster(len(ranked)))]
    for pair in pairwise.pairs:
        names = " – ".join(labels[rank] for rank in pair.nodes)
        if pair.error:
            lines.append(f"{names}: {pair.error}")
        elif not ranked:
            lines.append(f"{names}: median {format_seconds(statistics.median(pair.seconds))}")
    if pairwise.detectable_node is not None and pairwise.detectable_link is not None:
        lines.append(
            f"found from {format_percent(pairwise.detectable_node)} more time on for a node, "
            f"{format_percent(pairwise.detectable_link)} for a link"
        )
    lines.append(pairwise.verdict)
    for each in (*pairwise.nodes, *pairwise.links):
        if each.disposition is not None:
            kind = "link" if len(each.nodes) > 1 else "network of"
            name = " – ".join(labels[rank] for rank in each.nodes)
            lines.append(f"{each.disposition.value} {kind} {name}: {each.action}")
    yield from map(Paragraph, lines)


def _slowness_row(each: Slowness, labels: Mapping[int, str]) -> tuple[TableValue, ...]:
    mark = TableValue("")
    if each.is_bad:
        mark = TableValue("SLOW", None, Tone.BAD)
    elif each.is_suspect:
        mark = TableValue("unclear", None, Tone.CAUTION)
    name = " – ".join(labels[rank] for rank in each.nodes)
    return (
        TableValue(name),
        TableValue(format_percent(each.share)),
        TableValue(_interval(each)),
        mark,
    )


def speed_blocks(speeds: FleetSpeeds, labels: Mapping[int, str]) -> Iterator[Block]:
    """All low figures and the slowest others, then what was not compared."""
    shown = max(_MAX_RANKED, len(speeds.low))
    rows = [_figure_row(each, labels) for each in speeds.figures[:shown]]
    if rows:
        caption = f"speeds of {plural(speeds.nodes, 'node')}, the slowest first"
        numbers = ("rate", "95 % interval", "below", "limit")
        yield _ranking(caption, ("node", "part", "figure"), numbers, rows)
    if len(speeds.figures) > shown:
        yield Paragraph(_faster(len(speeds.figures), shown))
    lines = [*_what_to_do(speeds.low, labels)]
    lines += [f"not compared: {reason}" for reason in speeds.left_out]
    yield from map(Paragraph, lines)


def _figure_row(each: FleetFigure, labels: Mapping[int, str]) -> tuple[TableValue, ...]:
    texts = (
        labels[each.node_rank],
        each.part,
        each.figure,
        format_value(each.rate, each.unit),
        format_ends(format_value(each.low, each.unit), format_value(each.high, each.unit)),
        format_percent(each.deficit),
        format_percent(each.limit),
    )
    mark = TableValue("")
    if each.is_low:
        cause = each.cause.value if each.cause is not None else ""
        mark = TableValue(f"LOW ({cause})", None, Tone.BAD)
    elif each.deficit > each.limit:
        mark = TableValue("unclear", None, Tone.CAUTION)
    return (*map(TableValue, texts), mark)


def _faster(count: int, shown: int = _MAX_RANKED) -> str:
    return f"… and {count - shown} that are faster"


def _what_to_do(low: Sequence[FleetFigure], labels: Mapping[int, str]) -> list[str]:
    """``return 5 (n5), GPU 2: replace the GPU (compute bf16, memory bandwidth; …)``, a line for each
    part and cause."""
    figures: dict[tuple[str, str, str, str], list[str]] = {}
    for each in low:
        disposition = each.disposition or Disposition.RETEST
        part = f"{labels[each.node_rank]}, {each.part}"
        key = (disposition.value, part, each.action, each.because)
        figures.setdefault(key, []).append(each.figure)
    return [
        f"{disposition} {part}: {action} ({', '.join(names)}; {because})"
        for (disposition, part, action, because), names in figures.items()
    ]


def _interval(each: Slowness) -> str:
    """95 %. Without one pair that was left out, three nodes may tell nothing of a node or link."""
    if each.high > _MOST_SHARE:
        return "not known"
    return format_ends(format_percent(each.low), format_percent(each.high))


def _ranking(
    caption: str,
    texts: Sequence[str],
    numbers: Sequence[str],
    rows: Sequence[tuple[TableValue, ...]],
) -> Table:
    """The slowest first, with a mark behind its numbers."""
    numeric = (Column(title, numeric=True) for title in numbers)
    return Table(caption, (*map(Column, texts), *numeric, Column("")), tuple(rows))
