"""What a node sends of itself, held against what it was asked for and when. Only its facts and what
it measured count: what they mean is judged here, as on the node itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from torchscale.features.validate.acceptance.limits import documented
from torchscale.features.validate.acceptance.verdict import format_value
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements, lacks_required_device
from torchscale.features.validate.health.rule import cuda_devices_of, gpus_of
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, Baseline
from torchscale.schema.node.check import Status
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.fleet import FleetNode, NodeReport
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import NodeFacts
from torchscale.schema.node.validation import Validation
from torchscale.util.text import one_line

IMPOSSIBLE = 2.0
"""Times a documented rate that no device reaches. Clocks above the documented one give a few
percent, and caches help a copy of a device's memory by less than this."""
_CLOCK_SECONDS = 60.0
"""By how much a node's time may be off beside its known offset: NTP may correct a clock during a
check, and times are of whole seconds."""
_LONGEST_TEXT = 20_000
"""Characters of a text: the longest that a node sends are the last lines of a failed program, 8 KiB
at most."""
_LONGEST_SHOWN = 100


@dataclass(frozen=True)
class Asked:
    """What every node was asked for.

    Attributes:
        requirements: What it must have.
        burn_in, acceptance: Whether it was asked for one.
        baseline: What its figures are held against.
        policy: What *keep* asks for; ``None`` without an acceptance.
        nodes: How many nodes share the false alarms.
        began, ended: When, by the clock of node 0: seconds since the epoch.
    """

    requirements: Requirements
    burn_in: bool
    acceptance: bool
    baseline: Baseline | None
    policy: Policy | None
    nodes: int
    began: float
    ended: float


def fleet_node(
    node: LaunchNode, report: NodeReport | None, problem: str, asked: Asked
) -> FleetNode:
    """A node with the verdict on what it sent, or why there is none.

    Args:
        node: Who sent it.
        report: What it sent; ``None`` where it sent nothing of use.
        problem: Why its part of the step failed; empty where it did not.
        asked: What it was asked for.
    """
    validation = None
    if report is None:
        reason = problem or "it sent no result that this version understands"
    else:
        reason = contradiction(node, report, asked)
        if not reason:
            validation, reason = _judged(report, asked)
    return FleetNode(
        node_rank=node.node_rank,
        hostname=node.hostname,
        address=node.address,
        clock_offset_seconds=node.clock_offset_seconds,
        lacks_required=validation is not None and lacks_required_device(validation),
        validation=validation,
        error=reason,
    )


def contradiction(node: LaunchNode, report: NodeReport, asked: Asked) -> str:
    """Why what a node sent cannot be what it measured in this check; empty where it can."""
    return next(_contradictions(node, report, asked), "")


def _contradictions(node: LaunchNode, report: NodeReport, asked: Asked) -> Iterator[str]:
    facts, acceptance = report.validation.facts, report.validation.acceptance
    yield from _long_texts(report.validation)
    if facts.host is not None and facts.host.hostname != node.hostname:
        yield f"it sent the facts of another host, {_shown(facts.host.hostname)}"
    if acceptance is not None and asked.acceptance:
        yield from _of_run(acceptance.run, facts, node, asked)


def _of_run(run: AcceptanceRun, facts: NodeFacts, node: LaunchNode, asked: Asked) -> Iterator[str]:
    if run.hostname != node.hostname:
        yield f"it sent the figures of another host, {_shown(run.hostname)}"
    yield from _of_other_times(run, node, asked)
    yield from _repeated_rounds(run)
    devices = cuda_devices_of(facts) or 0
    if run.device == "cuda" and run.world_size > devices:
        yield f"it measured {run.world_size} ranks on {devices} GPUs"
    known = _uuids(facts)
    for series in run.series:
        if known and not known.issuperset(map(bare_uuid, series.uuids)):
            yield f"it sent {_shown(series.figure)} of a GPU that it does not have"
        fact = documented(series)
        fastest = max((value for value in series.values if value is not None), default=0.0)
        if fact is not None and fastest > IMPOSSIBLE * fact[0]:
            yield (
                f"{_shown(series.figure)} of {_shown(series.part)} is impossible: "
                f"{format_value(fastest, series.unit)}, {format_value(fact[0], series.unit)} are "
                "documented"
            )


def _uuids(facts: NodeFacts) -> set[str]:
    """Of all GPUs and slices of the node, without NVML's prefix; empty where nobody says them."""
    found: list[str] = []
    for gpu in gpus_of(facts):
        found += [gpu.uuid or "", *(gpu.slices or ())]
    if facts.software is not None:
        found += facts.software.cuda_uuids
    return {bare_uuid(uuid) for uuid in found if uuid}


def _of_other_times(run: AcceptanceRun, node: LaunchNode, asked: Asked) -> Iterator[str]:
    offset = node.clock_offset_seconds or 0.0
    earliest = asked.began + min(0.0, offset) - _CLOCK_SECONDS
    latest = asked.ended + max(0.0, offset) + _CLOCK_SECONDS
    for place, each in enumerate(run.rounds, start=1):
        try:
            moment = datetime.fromisoformat(each.started_at).timestamp()
        except (ValueError, OverflowError):
            yield f"round {place} began at {_shown(each.started_at)}, which is no time"
            return
        if not earliest <= moment <= latest:
            yield f"round {place} began at {each.started_at}, which is not in this check"
    spent = sum(each.seconds for each in run.rounds)
    if spent > asked.ended - asked.began + _CLOCK_SECONDS:
        yield f"its rounds took {spent:.0f} s, longer than this check"


def _repeated_rounds(run: AcceptanceRun) -> Iterator[str]:
    """No time is measured twice to the last digit."""
    seen: dict[tuple[float | None, ...], int] = {}
    for place in range(len(run.rounds)):
        rates = tuple(series.values[place] for series in run.series)
        if any(rate is not None for rate in rates):
            first = seen.setdefault(rates, place)
            if first != place:
                yield f"rounds {first + 1} and {place + 1} are one measurement"


def _long_texts(validation: Validation) -> Iterator[str]:
    left: list[object] = [validation.model_dump(include={"facts", "burn_in", "acceptance"})]
    while left:
        item = left.pop()
        if isinstance(item, str) and len(item) > _LONGEST_TEXT:
            yield f"it sent a text of {len(item):,} characters, {_shown(item)}"
        elif isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, (list, tuple)):
            left += item


def _judged(report: NodeReport, asked: Asked) -> tuple[Validation | None, str]:
    """The verdict on what a node measured, and why there is none."""
    sent = report.validation
    acceptance = None
    if sent.acceptance is not None and asked.acceptance:
        run = sent.acceptance.run.model_copy(update={"nodes": asked.nodes})
        power = sent.acceptance.power
        acceptance = Acceptance(
            folder=sent.acceptance.folder, run=run, baseline=asked.baseline, power=power
        )
    burn_in = sent.burn_in if asked.burn_in else None
    try:
        validation = validate_facts(
            sent.facts, asked.requirements, burn_in, acceptance, policy=asked.policy
        )
    except (ArithmeticError, LookupError, ValueError) as error:
        # Another machine wrote it: numbers that no machine has overflow in whatever judges them.
        return None, f"it sent what cannot be judged: {_shown(str(error))}"
    sound = all(check.status is not Status.FAIL for check in validation.checks)
    for what, was_asked, found in (
        ("burn-in", asked.burn_in, burn_in),
        ("acceptance", asked.acceptance, acceptance),
    ):
        if was_asked and found is None and sound:  # of an unsound node there need be none
            return None, f"it sent nothing of the {what} that was asked for"
    return validation, ""


def copies(runs: Mapping[int, AcceptanceRun]) -> list[tuple[int, int]]:
    """Pairs of nodes that sent one measurement: the rates of a series are the same to the last
    digit. Which of them made it cannot be told."""
    known = {rank: _measured(run) for rank, run in runs.items()}
    return [(a, b) for a, b in combinations(sorted(runs), 2) if known[a] & known[b]]


def _measured(run: AcceptanceRun) -> frozenset[tuple[float, ...]]:
    found = (tuple(value for value in series.values if value is not None) for series in run.series)
    return frozenset(rates for rates in found if len(set(rates)) > 1)


def _shown(text: str) -> str:
    """In one line and not without end."""
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[: _LONGEST_SHOWN - 1]}…"
    return one_line(text)
