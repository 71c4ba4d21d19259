"""Ranks that wait in ``init_process_group`` for others, and torchrun that waits for other nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torchscale.features.watch.hang.stacks import own_place
from torchscale.schema.launch.hang import (
    Autopsy,
    HangCause,
    RankPosition,
    StackFrame,
    StuckCollective,
)
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.text import agreeing, ranks_label
from torchscale.util.words import plural

_JOINING = "init_process_group"


@dataclass(frozen=True)
class Joining:
    """A rank that waits for all others.

    Attributes:
        rank, world_size: As it was started.
        address: Where they meet; empty where not known.
        frames: Of its stack, outermost first.
    """

    rank: int
    world_size: int
    address: str = ""
    frames: tuple[StackFrame, ...] = ()


@dataclass(frozen=True)
class Meeting:
    """A torchrun that waits for those of other nodes.

    Attributes:
        address: Where they meet; empty where not known.
        least_nodes, most_nodes: That it takes; ``None`` where not known.
        joined: So far; ``None`` where not known.
        node: Number of this one, where the command gave it.
    """

    address: str = ""
    least_nodes: int | None = None
    most_nodes: int | None = None
    joined: int | None = None
    node: int | None = None


def explain_joining(
    joining: Sequence[Joining],
    others: Mapping[int, str],
    ended: Mapping[int, str],
    evidence: Sequence[str] = (),
    *,
    begun: Collection[int] = (),
) -> Autopsy | None:
    """Who waits for whom before the first collective; ``None`` where nobody waits.

    Args:
        joining: Ranks that wait.
        others: Ranks that do not, and are there → what is known of them.
        ended: Ranks that have ended → how.
        evidence: What else is known, a line each.
        begun: Ranks that have joined and gone on.
    """
    if not joining:
        return None
    waiting = sorted({one.rank for one in joining})
    world_size = max(one.world_size for one in joining)
    missing = [rank for rank in range(world_size) if rank not in {*waiting, *begun}]
    here = [rank for rank in missing if rank in others]
    gone = [rank for rank in missing if rank in ended]
    addresses = sorted({one.address for one in joining})
    wait = (
        f"{ranks_label(waiting)} {agreeing(waiting, 'waits', 'wait')} in {_JOINING}{_at(joining)}"
    )
    cause, ranks, confidence = HangCause.RANK_MISSING, missing, Confidence.MEDIUM
    if len(addresses) > 1:
        places = "; ".join(
            f"{ranks_label([one.rank for one in joining if one.address == address])} at {address}"
            for address in addresses
        )
        cause, ranks = HangCause.UNKNOWN, []
        summary = f"{wait}, but not in one place: {places}"
    elif gone:
        cause, ranks, confidence = HangCause.RANK_GONE, gone, Confidence.HIGH
        has = agreeing(gone, "has", "have")
        summary = f"{wait} for {ranks_label(gone)}{_where(addresses)}, which {has} ended"
        if len({ended[rank] for rank in gone}) == 1 and ended[gone[0]]:
            summary += f": {ended[gone[0]]}"
    elif not missing:
        cause, confidence = HangCause.UNKNOWN, Confidence.LOW
        summary = f"{wait}{_where(addresses)}; all {world_size} ranks have come"
    else:
        if len(missing) == 1:
            confidence = Confidence.HIGH
        summary = f"{wait} for {ranks_label(missing)}{_where(addresses)}, {_absent(missing, here)}"
    said = [f"rank {rank}: {others[rank]}" for rank in here]
    return Autopsy(
        cause=cause,
        ranks=tuple(ranks),
        collective=StuckCollective(operation=_JOINING),
        confidence=confidence,
        summary=summary,
        evidence=(*said, *evidence),
        positions=tuple(
            RankPosition(rank=one.rank, place=own_place(one.frames), collective=_JOINING)
            for one in sorted(joining, key=lambda one: one.rank)
        ),
    )


def _at(joining: Sequence[Joining]) -> str:
    places = sorted({own_place(one.frames) for one in joining} - {""})
    return f" at {places[0]}" if len(places) == 1 else ""


def _where(addresses: Sequence[str]) -> str:
    return f" at {addresses[0]}" if addresses[0] else ""


def _absent(missing: Sequence[int], here: Sequence[int]) -> str:
    """What is known of the ranks that are waited for."""
    if set(here) == set(missing):
        runs, has = agreeing(missing, "runs", "run"), agreeing(missing, "has", "have")
        return f"which {runs} and {has} not called it"
    if len(missing) == 1:
        return "which has not joined: it was not started, or it cannot reach that address"
    return (
        "of which one at least has not joined: it was not started, or it cannot reach that address"
    )


def explain_meeting(meeting: Meeting, evidence: Sequence[str] = ()) -> Autopsy:
    """Why torchrun starts no ranks."""
    where = f" at {meeting.address}" if meeting.address else ""
    summary = f"torchrun: its rendezvous{where} waits for {_nodes_missing(meeting)}"
    return Autopsy(
        cause=HangCause.NODE_MISSING,
        confidence=Confidence.MEDIUM if meeting.joined is None else Confidence.HIGH,
        summary=f"{summary}, which was not started or cannot reach that address",
        evidence=tuple(evidence),
    )


def _nodes_missing(meeting: Meeting) -> str:
    """``a second node (1 of 2 joined)``, ``node 1 (this is node 0 of 2)``."""
    least, joined = meeting.least_nodes, meeting.joined
    of = "" if least is None else f" of {least}"
    if meeting.most_nodes is not None and least is not None and meeting.most_nodes > least:
        of = f" of {least} to {meeting.most_nodes}"
    if joined is not None and least is not None and joined < least:
        if (joined, least) == (1, 2):
            return f"a second node (1{of} joined)"
        return f"{plural(least - joined, 'more node')} ({joined}{of} joined)"
    if meeting.node is not None and least == 2:
        return f"node {1 - meeting.node} (this is node {meeting.node}{of})"
    if meeting.node is not None:
        return f"other nodes (this is node {meeting.node}{of})"
    return f"other nodes (it takes{of.removeprefix(' of')})" if of else "other nodes"
