"""What is said of nodes: names, problems, the gravest verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.features.validate.acceptance.limits import NODE
from torchscale.features.validate.health.answer import FAULTS, gravest
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.fleet import FleetNode, FleetSpeeds, Pairwise
from torchscale.schema.node.validation import Disposition, Validation
from torchscale.util.units import format_percent
from torchscale.util.words import capped

_MOST_NAMED = 4


def named(nodes: Sequence[int], names: Mapping[int, str]) -> str:
    """``node 1 (n1)``, ``link of nodes 0 (n0) and 1 (n1)``."""
    texts = [f"{rank} ({names[rank]})" for rank in nodes]
    if len(texts) == 1:
        return f"node {texts[0]}"
    return f"link of nodes {texts[0]} and {texts[1]}"


def has_fault(node: FleetNode) -> bool:
    """Whether a part of it is to be tested again or returned, or it sent nothing."""
    return node.validation is None or node.validation.disposition in FAULTS


def node_disposition(
    node: FleetNode, speeds: FleetSpeeds | None, rails: Sequence[Pairwise]
) -> Disposition:
    """The gravest of its own verdict and of what is slow of it among the others. One that sent
    nothing is to be tested again."""
    rank, found = node.node_rank, [Disposition.RETEST]
    if node.validation is not None:
        found = [node.validation.disposition]
    if speeds is not None:
        found += [
            each.disposition for each in speeds.low if each.node_rank == rank if each.disposition
        ]
        if rank in {*speeds.implausible, *(one for pair in speeds.copies for one in pair)}:
            found.append(Disposition.RETEST)
    slow = [each for rail in rails for each in rail.nodes if each.nodes == (rank,)]
    found += [each.disposition for each in slow if each.disposition is not None]
    return gravest(found)


def fleet_disposition(
    nodes: Sequence[FleetNode], speeds: FleetSpeeds | None, *, has_problems: bool
) -> Disposition:
    """The gravest of all nodes and of what is slow among them."""
    found = [node.validation.disposition for node in nodes if node.validation is not None]
    if speeds is not None:
        found += [each.disposition for each in speeds.low if each.disposition is not None]
    if has_problems:
        found.append(Disposition.RETEST)
    return gravest(found)


def without_faults(nodes: Sequence[FleetNode], verdict: str, disposition: Disposition) -> str:
    """``Keep: …``, or which nodes are undecided, each with the reason and the action."""
    if disposition is Disposition.KEEP:
        return f"Keep: put them into service. {verdict}"
    texts = [
        f"{named([node.node_rank], {node.node_rank: node.hostname})}: "
        f"{node.validation.verdict.removeprefix('Undecided: ')}"
        for node in nodes
        if node.validation is not None and node.validation.disposition is Disposition.UNDECIDED
    ]
    return f"Undecided: {' '.join(capped(texts, _MOST_NAMED, 'And {} more nodes.'))}"


def slow_speeds(speeds: FleetSpeeds, names: Mapping[int, str]) -> list[str]:
    """Nodes and parts with low figures, each with all of its figures, and nodes whose figures are
    no measurement of theirs."""
    found: dict[tuple[int, str], list[str]] = {}
    for each in speeds.low:
        text = f"{each.figure} {format_percent(each.deficit, 0)}"
        found.setdefault((each.node_rank, each.part), []).append(text)
    texts = [
        f"{part + ' of ' if part != NODE else ''}{named([rank], names)} is slow: "
        f"{', '.join(figures)} below the others"
        for (rank, part), figures in found.items()
    ]
    texts += [
        f"{named([rank], names)} cannot be judged: {', '.join(figures)} is far above what the "
        "others reach"
        for rank, figures in speeds.implausible.items()
    ]
    texts += [
        f"{named([a], names)} and {named([b], names)} sent one measurement, which one of them "
        "has not made"
        for a, b in speeds.copies
    ]
    return texts


def problem(node: FleetNode) -> str:
    """What is wrong with a node that is not fit."""
    if node.validation is None:
        return node.error
    if node.fit:
        return node.validation.verdict.rstrip(".")
    return "failed " + ", ".join(check.title for check in failed_checks(node.validation))


def failed_checks(validation: Validation) -> tuple[Check, ...]:
    """Checks that make the node unfit."""
    return tuple(check for check in validation.checks if check.status is Status.FAIL)
