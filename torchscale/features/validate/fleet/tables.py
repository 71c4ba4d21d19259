"""``validate`` over several nodes: what differs first, then the nodes, their checks, the links and
the verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.console import Console

from torchscale.features.validate.document import CHECK_TONES
from torchscale.features.validate.first_screen import PART_TONES
from torchscale.features.validate.fleet.differences import checks_of
from torchscale.features.validate.fleet.fleet import rail_name, slow_rail_text
from torchscale.features.validate.fleet.rankings import pairwise_blocks, speed_blocks
from torchscale.features.validate.health.answer import FAULTS, gravity
from torchscale.features.validate.terminal import print_fixes, print_verdict, verdict_tone
from torchscale.report.document import Block, Paragraph
from torchscale.report.formats.console import print_blocks, print_line
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, text_value
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.fleet import FleetNode, FleetValidation, PairwiseStatus
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition
from torchscale.util.units import format_seconds

_MAX_NAMED = 6
"""Nodes that are named one by one; of more the rest is counted."""


def print_fleet(fleet: FleetValidation, console: Console) -> None:
    """The whole answer; the verdict last."""
    print_blocks(fleet_blocks(fleet), console)
    print_verdict(fleet.verdict, console, verdict_tone(fleet))


def print_fleet_fixes(fleet: FleetValidation, console: Console) -> None:
    """The commands of ``--fix-hints``, node by node."""
    for node in fleet.nodes:
        if node.validation is not None and any(
            check.status in (Status.WARN, Status.FAIL) for check in node.validation.checks
        ):
            console.print()
            print_line(node_label(node), console)
            print_fixes(node.validation, console)


def fleet_blocks(fleet: FleetValidation) -> Iterator[Block]:
    """What differs, the nodes, their checks and parts, what is slow."""
    labels = {node.node_rank: node_label(node) for node in fleet.nodes}
    yield from _differences(fleet)
    rows = [_node_row(node, is_accepted=fleet.policy is not None) for node in fleet.nodes]
    yield _table("Nodes", ("node", "address"), ("verdict",), rows)
    yield from _checks(fleet.nodes)
    named = FAULTS if fleet.policy is None else (*FAULTS, Disposition.UNDECIDED)
    yield from _parts(fleet.nodes, named)
    if fleet.collective is not None:
        yield Paragraph(f"collective over all nodes: {_collective(fleet.collective)}")
    if fleet.speeds is not None:
        yield from speed_blocks(fleet.speeds, labels)
    if fleet.pairwise is not None:
        yield from pairwise_blocks(fleet.pairwise, labels)
    for rail in fleet.rails:
        if rail.status is not PairwiseStatus.NONE:
            yield from pairwise_blocks(rail, labels)
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


def _node_row(node: FleetNode, *, is_accepted: bool) -> tuple[TableValue, ...]:
    """Its own verdict, unless an acceptance says worse of it beside the others."""
    verdict = node.error
    tone = Tone.GOOD if node.fit else Tone.BAD
    if node.validation is not None:
        verdict, tone = node.validation.verdict, verdict_tone(node.validation)
        if is_accepted and gravity(node.disposition) > gravity(node.validation.disposition):
            verdict, tone = (
                f"{node.disposition.value.capitalize()}: by what the others show, below.",
                Tone.BAD,
            )
    return TableValue(node_label(node)), text_value(node.address), TableValue(verdict, None, tone)


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


def _parts(nodes: Sequence[FleetNode], dispositions: Collection[Disposition]) -> Iterator[Table]:
    """The parts of nodes of these verdicts, those to be returned first."""
    found = [
        (node, part)
        for node in nodes
        for part in (node.validation.parts if node.validation is not None else ())
        if part.disposition in dispositions
    ]
    found.sort(key=lambda row: -gravity(row[1].disposition))
    rows = [
        (
            TableValue(part.disposition.value, None, PART_TONES[part.disposition]),
            *map(TableValue, (node_label(node), part.part, part.action, "; ".join(part.reasons))),
        )
        for node, part in found
    ]
    if rows:
        what = ("part", "what to do", "because")
        yield _table("What to do", ("verdict", "node"), what, rows)


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


def node_label(node: FleetNode) -> str:
    """``1 (n1)``."""
    return f"{node.node_rank} ({node.hostname})"


def _names(nodes: Sequence[FleetNode]) -> str:
    if len(nodes) <= _MAX_NAMED:
        return ", ".join(node_label(node) for node in nodes)
    return (
        ", ".join(node_label(node) for node in nodes[: _MAX_NAMED - 1])
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
