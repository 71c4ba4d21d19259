"""``validate`` over several nodes: what differs first, then the nodes, their checks, the links and
the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.features.validate.acceptance.verdict import format_value
from torchscale.features.validate.fleet.differences import checks_of
from torchscale.features.validate.fleet.fleet import rail_name, slow_rail_text
from torchscale.features.validate.terminal import PART_STYLES, print_fixes
from torchscale.report.text.words import plural
from torchscale.schema.node.check import Check, Disposition, Status
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
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_bytes, format_percent, format_seconds

_MAX_NAMED = 6
"""Nodes that are named one by one; of more the rest is counted."""
_MOST_SHARE = 1000.0
"""A thousand times as long is no estimate."""
_MAX_RANKED = 10
"""Nodes and links of the ranking, the slowest first; ``--json`` has all."""


def print_fleet(fleet: FleetValidation, console: Console) -> None:
    """The whole answer; the verdict last."""
    labels = {node.node_rank: _label(node) for node in fleet.nodes}
    _print_differences(fleet, console)
    _print_nodes(fleet.nodes, console)
    _print_checks(fleet.nodes, console)
    _print_parts(fleet.nodes, console)
    if fleet.collective is not None:
        console.print(
            f"\ncollective over all nodes: {_collective(fleet.collective)}",
            markup=False,
            highlight=False,
        )
    if fleet.speeds is not None:
        _print_speeds(fleet.speeds, labels, console)
    if fleet.pairwise is not None:
        _print_pairwise(fleet.pairwise, labels, console)
    for pairwise in fleet.rails:
        _print_rail(pairwise, labels, console)
    for slow in fleet.slow_rails:
        console.print(slow_rail_text(slow), style="red", markup=False, highlight=False)
    if fleet.rails_left_out:
        left_out = ", ".join(map(str, fleet.rails_left_out))
        console.print(f"rails not measured: {left_out}", markup=False, highlight=False)
    if fleet.networks_left_out:
        left_out = ", ".join(fleet.networks_left_out)
        console.print(f"networks not measured: {left_out}", markup=False, highlight=False)
    console.print()
    style = "bold red"
    if fleet.fit:
        style = "bold"
    console.print(fleet.verdict, style=style, markup=False, highlight=False)


def print_fleet_fixes(fleet: FleetValidation, console: Console) -> None:
    """The commands of ``--fix-hints``, node by node."""
    for node in fleet.nodes:
        if node.validation is not None and any(
            check.status in (Status.WARN, Status.FAIL) for check in node.validation.checks
        ):
            console.print(f"\n{_label(node)}", style="bold underline", markup=False)
            print_fixes(node.validation, console)


def _print_differences(fleet: FleetValidation, console: Console) -> None:
    """Each value with the nodes that have it, the rarest first: it is the likely fault."""
    if not fleet.differences:
        checked = sum(node.validation is not None for node in fleet.nodes)
        if checked > 1:
            console.print(
                f"[bold]no difference[/bold] between the {checked} checked nodes", highlight=False
            )
        return
    table = _table("differs between nodes", "value", "nodes")
    for difference in fleet.differences:
        having: dict[str, list[FleetNode]] = {}
        for node, value in zip(fleet.nodes, difference.values, strict=True):
            having.setdefault(value, []).append(node)
        rows = sorted(having.items(), key=lambda item: len(item[1]))
        title = escape(difference.title)
        for value, nodes in rows:
            table.add_row(title, escape(value), escape(_names(nodes)))
            title = ""
    console.print(table)


def _print_nodes(nodes: Sequence[FleetNode], console: Console) -> None:
    table = _table("node", "address", "verdict")
    for node in nodes:
        verdict, style = node.error, "bold red"
        if node.validation is not None:
            verdict = node.validation.verdict
        if node.fit:
            style = "green"
        table.add_row(
            escape(_label(node)), escape(node.address), f"[{style}]{escape(verdict)}[/{style}]"
        )
    console.print()
    console.print(table)


def _print_checks(nodes: Sequence[FleetNode], console: Console) -> None:
    """Warnings and failures; what several nodes share is shown once."""
    having: dict[Check, list[FleetNode]] = {}
    for node in nodes:
        for check in checks_of(node):
            if check.status in (Status.WARN, Status.FAIL):
                having.setdefault(check, []).append(node)
    if not having:
        return
    table = _table("", "check", "seen", "nodes")
    styles = {Status.WARN: "yellow", Status.FAIL: "bold red"}
    for check, those in sorted(having.items(), key=lambda item: item[0].status is not Status.FAIL):
        style = styles[check.status]
        names, seen = _names(those), escape(check.seen)
        if len(those) == len(nodes):
            names = "all"
        if check.advice:
            seen += f"\n[dim]do:[/dim] {escape(check.advice)}"
        table.add_row(
            f"[{style}]{check.status.value}[/{style}]", escape(check.title), seen, escape(names)
        )
    console.print()
    console.print(table)


def _print_parts(nodes: Sequence[FleetNode], console: Console) -> None:
    """The parts of nodes that are not kept as they are, those to be returned first."""
    rows = [
        (node, part)
        for node in nodes
        for part in (node.validation.parts if node.validation is not None else ())
        if part.disposition is not Disposition.KEEP
    ]
    if not rows:
        return
    table = _table("", "node", "part", "what to do", "because")
    for node, part in sorted(rows, key=lambda row: row[1].disposition is not Disposition.RETURN):
        style = PART_STYLES[part.disposition]
        table.add_row(
            f"[{style}]{part.disposition.value}[/{style}]",
            escape(_label(node)),
            escape(part.part),
            escape(part.action),
            escape("; ".join(part.reasons)),
        )
    console.print()
    console.print(table)


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


def _print_pairwise(pairwise: Pairwise, labels: Mapping[int, str], console: Console) -> None:
    console.print(
        f"\nall pairs: {plural(len(pairwise.pairs), 'all-reduce')} of "
        f"{format_bytes(pairwise.message_bytes)} over "
        f"{pairwise.backend}{rail_name(pairwise)}",
        markup=False,
        highlight=False,
    )
    ranked = sorted((*pairwise.nodes, *pairwise.links), key=lambda each: -each.share)
    if ranked:
        table = _table("node or link", "more time", "95 % interval", "")
        for each in ranked[:_MAX_RANKED]:
            name = " – ".join(labels[rank] for rank in each.nodes)
            table.add_row(escape(name), format_percent(each.share), _interval(each), _mark(each))
        console.print(table)
        if len(ranked) > _MAX_RANKED:
            console.print(
                f"… and {len(ranked) - _MAX_RANKED} that are faster", style="dim", highlight=False
            )
    for pair in pairwise.pairs:
        names = " – ".join(labels[rank] for rank in pair.nodes)
        if pair.error:
            console.print(f"{names}: {pair.error}", style="red", markup=False, highlight=False)
        elif not ranked:
            median = format_seconds(statistics.median(pair.seconds))
            console.print(f"{names}: median {median}", markup=False, highlight=False)
    if pairwise.detectable_node is not None and pairwise.detectable_link is not None:
        console.print(
            f"found from {format_percent(pairwise.detectable_node)} more time on for a node, "
            f"{format_percent(pairwise.detectable_link)} for a link",
            style="dim",
            highlight=False,
        )
    console.print(pairwise.verdict, markup=False, highlight=False)
    for each in (*pairwise.nodes, *pairwise.links):
        if each.disposition is not None:
            name = " – ".join(labels[rank] for rank in each.nodes)
            kind = "link" if len(each.nodes) > 1 else "network of"
            line = f"{each.disposition.value} {kind} {name}: {each.action}"
            console.print(line, markup=False, highlight=False)


def _print_rail(pairwise: Pairwise, labels: Mapping[int, str], console: Console) -> None:
    """A further rail: the whole of it where anything is slow or unclear, else a line."""
    if pairwise.status is not PairwiseStatus.NONE:
        _print_pairwise(pairwise, labels, console)
        return
    console.print(f"{pairwise.verdict}{rail_name(pairwise)}", markup=False, highlight=False)


def _print_speeds(speeds: FleetSpeeds, labels: Mapping[int, str], console: Console) -> None:
    """All low figures and the slowest others, then what was not compared."""
    shown = max(_MAX_RANKED, len(speeds.low))
    if speeds.figures:
        table = _table("node", "part", "figure", "rate", "95 % interval", "below", "limit", "")
        for each in speeds.figures[:shown]:
            table.add_row(
                escape(labels[each.node_rank]),
                escape(each.part),
                escape(each.figure),
                format_value(each.rate, each.unit),
                format_ends(format_value(each.low, each.unit), format_value(each.high, each.unit)),
                format_percent(each.deficit),
                format_percent(each.limit),
                _speed_mark(each),
            )
        console.print(f"\nspeeds of {plural(speeds.nodes, 'node')}, the slowest first")
        console.print(table)
        if len(speeds.figures) > shown:
            left = len(speeds.figures) - shown
            console.print(f"… and {left} that are faster", style="dim", highlight=False)
    for line in _what_to_do(speeds.low, labels):
        console.print(line, markup=False, highlight=False)
    for reason in speeds.left_out:
        console.print(f"not compared: {reason}", style="dim", markup=False, highlight=False)


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


def _speed_mark(figure: FleetFigure) -> str:
    if not figure.is_low and figure.deficit > figure.limit:
        return "[yellow]unclear[/yellow]"
    if not figure.is_low:
        return ""
    cause = figure.cause.value if figure.cause is not None else ""
    return f"[bold red]LOW[/bold red] ({cause})"


def _interval(each: Slowness) -> str:
    """95 %. Without one pair that was left out, three nodes may tell nothing of a node or link."""
    if each.high > _MOST_SHARE:
        return "not known"
    return format_ends(format_percent(each.low), format_percent(each.high))


def _mark(each: Slowness) -> str:
    if each.is_bad:
        return "[bold red]SLOW[/bold red]"
    if each.is_suspect:
        return "[yellow]unclear[/yellow]"
    return ""


def _label(node: FleetNode) -> str:
    return f"{node.node_rank} ({node.hostname})"


def _names(nodes: Sequence[FleetNode]) -> str:
    if len(nodes) <= _MAX_NAMED:
        return ", ".join(_label(node) for node in nodes)
    return (
        ", ".join(_label(node) for node in nodes[: _MAX_NAMED - 1])
        + f" and {len(nodes) - _MAX_NAMED + 1} more"
    )


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
