"""``validate`` over several nodes: what differs first, then the nodes, their checks, the links and
the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from torchscale.features.validate.acceptance.verdict import format_value
from torchscale.features.validate.document import CHECK_TONES, PART_TONES
from torchscale.features.validate.fleet.differences import checks_of
from torchscale.features.validate.fleet.fleet import rail_name, slow_rail_text
from torchscale.features.validate.terminal import print_fixes, print_verdict
from torchscale.report.document import Block, Paragraph
from torchscale.report.formats.console import print_blocks, print_line
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, only_if, text_value
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.fleet import (
    FleetFigure,
    FleetNode,
    FleetSpeeds,
    FleetValidation,
    Pairwise,
    PairwiseStatus,
    Slowness,
)
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_bytes, format_percent, format_seconds
from torchscale.util.words import plural

_MAX_NAMED = 6
"""Nodes that are named one by one; of more the rest is counted."""
_MOST_SHARE = 1000.0
"""A thousand times as long is no estimate."""
_MAX_RANKED = 10
"""Nodes and links of the ranking, the slowest first; ``--json`` has all."""


def print_fleet(fleet: FleetValidation, console: Console) -> None:
    """The whole answer; the verdict last."""
    print_blocks(_blocks(fleet), console)
    print_verdict(fleet.verdict, console, fit=fleet.fit)


def print_fleet_fixes(fleet: FleetValidation, console: Console) -> None:
    """The commands of ``--fix-hints``, node by node."""
    for node in fleet.nodes:
        if node.validation is not None and any(
            check.status in (Status.WARN, Status.FAIL) for check in node.validation.checks
        ):
            console.print()
            print_line(_label(node), console)
            print_fixes(node.validation, console)


def _blocks(fleet: FleetValidation) -> Iterator[Block]:
    labels = {node.node_rank: _label(node) for node in fleet.nodes}
    yield from _differences(fleet)
    rows = [_node_row(node) for node in fleet.nodes]
    yield _table("Nodes", ("node", "address"), ("verdict",), rows)
    yield from _checks(fleet.nodes)
    yield from _parts(fleet.nodes)
    if fleet.collective is not None:
        yield Paragraph(f"collective over all nodes: {_collective(fleet.collective)}")
    if fleet.speeds is not None:
        yield from _speeds(fleet.speeds, labels)
    if fleet.pairwise is not None:
        yield from _pairwise(fleet.pairwise, labels)
    for rail in fleet.rails:
        if rail.status is not PairwiseStatus.NONE:
            yield from _pairwise(rail, labels)
        else:
            yield Paragraph(f"{rail.verdict}{rail_name(rail)}")
    yield from (Paragraph(slow_rail_text(slow)) for slow in fleet.slow_rails)
    for what, names in (("rails", fleet.rails_left_out), ("networks", fleet.networks_left_out)):
        if names:
            yield Paragraph(f"{what} not measured: {', '.join(map(str, names))}")


def _differences(fleet: FleetValidation) -> Iterator[Block]:
    """Each value with the nodes that have it, the rarest first: it is the likely fault."""
    checked = sum(node.validation is not None for node in fleet.nodes)
    if not fleet.differences and checked > 1:
        yield Paragraph(f"no difference between the {checked} checked nodes")
    rows = []
    for difference in fleet.differences:
        having: dict[str, list[FleetNode]] = {}
        for node, value in zip(fleet.nodes, difference.values, strict=True):
            having.setdefault(value, []).append(node)
        for value, nodes in sorted(having.items(), key=lambda item: len(item[1])):
            rows.append(tuple(map(TableValue, (difference.title, value, _names(nodes)))))
    if rows:
        yield _table("Differences between nodes", ("what",), ("value", "nodes"), rows)


def _node_row(node: FleetNode) -> tuple[TableValue, ...]:
    verdict = node.error
    if node.validation is not None:
        verdict = node.validation.verdict
    tone = Tone.GOOD if node.fit else Tone.BAD
    return TableValue(_label(node)), text_value(node.address), TableValue(verdict, None, tone)


def _checks(nodes: Sequence[FleetNode]) -> Iterator[Table]:
    """Warnings and failures; what several nodes share is shown once."""
    having: dict[Check, list[FleetNode]] = {}
    for node in nodes:
        for check in checks_of(node):
            if check.status in (Status.WARN, Status.FAIL):
                having.setdefault(check, []).append(node)
    rows = [
        (
            TableValue(check.status.value, None, CHECK_TONES[check.status]),
            *map(TableValue, (check.title, check.seen)),
            TableValue("all" if len(those) == len(nodes) else _names(those)),
            text_value(check.advice),
        )
        for check, those in sorted(
            having.items(), key=lambda item: item[0].status is not Status.FAIL
        )
    ]
    if rows:
        yield _table("Checks", ("result", "check"), ("seen", "nodes", "do"), rows)


def _parts(nodes: Sequence[FleetNode]) -> Iterator[Table]:
    """The parts of nodes that are not kept as they are, those to be returned first."""
    found = [
        (node, part)
        for node in nodes
        for part in (node.validation.parts if node.validation is not None else ())
        if part.disposition is not Disposition.KEEP
    ]
    found.sort(key=lambda row: row[1].disposition is not Disposition.RETURN)
    rows = [
        (
            TableValue(part.disposition.value, None, PART_TONES[part.disposition]),
            *map(TableValue, (_label(node), part.part, part.action, "; ".join(part.reasons))),
        )
        for node, part in found
    ]
    if rows:
        what = ("part", "what to do", "because")
        yield _table("Retest or return", ("verdict", "node"), what, rows)


def _collective(facts: CollectiveFacts) -> str:
    ranks = f"{facts.backend}, {facts.world_size} ranks"
    if facts.error is not None:
        return f"FAILED ({ranks}): {facts.error}"
    text = f"{ranks}: every element exact"
    if facts.wrong_elements:
        text = f"{ranks}: {facts.wrong_elements:,} WRONG ELEMENTS"
    if facts.seconds is None:
        return text
    return f"{text}; 1 MiB in {format_seconds(facts.seconds)}"


def _pairwise(pairwise: Pairwise, labels: Mapping[int, str]) -> Iterator[Block]:
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


def _speeds(speeds: FleetSpeeds, labels: Mapping[int, str]) -> Iterator[Block]:
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


def _label(node: FleetNode) -> str:
    return f"{node.node_rank} ({node.hostname})"


def _names(nodes: Sequence[FleetNode]) -> str:
    if len(nodes) <= _MAX_NAMED:
        return ", ".join(_label(node) for node in nodes)
    return (
        ", ".join(_label(node) for node in nodes[: _MAX_NAMED - 1])
        + f" and {len(nodes) - _MAX_NAMED + 1} more"
    )


def _table(
    caption: str,
    short: Sequence[str],
    prose: Sequence[str],
    rows: Sequence[tuple[TableValue, ...]],
) -> Table:
    columns = (*map(Column, short), *(Column(title, prose=True) for title in prose))
    return Table(caption, columns, tuple(rows))


def _ranking(
    caption: str,
    texts: Sequence[str],
    numbers: Sequence[str],
    rows: Sequence[tuple[TableValue, ...]],
) -> Table:
    """The slowest first, with a mark behind its numbers."""
    numeric = (Column(title, numeric=True) for title in numbers)
    return Table(caption, (*map(Column, texts), *numeric, Column("")), tuple(rows))
