"""What the checks of several nodes say together: which node or link is slow, whether the fleet is
fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from torchscale.features.cluster.nodes.preflight import MAX_CLOCK_OFFSET_SECONDS
from torchscale.features.validate.fleet.differences import compare_nodes, node_clock
from torchscale.features.validate.fleet.pair_judgement import Effect, Judgement
from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.features.validate.fleet.pairwise import judge_pairs
from torchscale.features.validate.fleet.verdicts import (
    fleet_disposition,
    has_fault,
    named,
    node_disposition,
    problem,
    slow_speeds,
    without_faults,
)
from torchscale.schema.node.fleet import (
    FleetNode,
    FleetSpeeds,
    FleetValidation,
    MeasuredPair,
    Pairwise,
    PairwiseStatus,
    Slowness,
    SlowRail,
)
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition
from torchscale.util.units import format_percent


def judge_pairwise(
    ranks: Sequence[int],
    names: Mapping[int, str],
    seconds: Mapping[Pair, Sequence[float]],
    errors: Mapping[Pair, str],
    *,
    backend: str,
    message_bytes: int,
    repeated: Collection[Pair] | None = None,
    rail: int | None = None,
    network: str = "",
    rails: int = 1,
) -> tuple[Pairwise, tuple[Pair, ...]]:
    """Name the bad nodes and links.

    Args:
        ranks: Node rank of each place.
        names: Node rank → host name.
        seconds: Times of each pair of places; none of those in ``errors``.
        errors: Pair of places → why it has no times.
        backend, message_bytes: Backend and size of the all-reduce.
        repeated: Pairs that were measured at more than one moment; ``None``: all.
        rail: Local index of the GPU that took part on each node.
        network: The network that was used.
        rails: How many of them are judged.

    Returns:
        What is said of the fleet, and the pairs of places that should be measured again.
    """
    pairs = [
        MeasuredPair(
            nodes=(ranks[pair[0]], ranks[pair[1]]),
            seconds=tuple(seconds.get(pair, ())),
            error=errors.get(pair, ""),
        )
        for pair in sorted({*seconds, *errors})
    ]
    if errors:
        pairwise = Pairwise(
            backend=backend,
            message_bytes=message_bytes,
            rail=rail,
            network=network,
            status=PairwiseStatus.FAILED,
            verdict=_failed_pairs(ranks, names, errors),
            pairs=tuple(pairs),
        )
        return pairwise, ()
    judgement = judge_pairs(len(ranks), seconds, repeated, rails)
    pairwise = Pairwise(
        backend=backend,
        message_bytes=message_bytes,
        rail=rail,
        network=network,
        status=judgement.status,
        verdict=_verdict(ranks, names, judgement),
        pairs=tuple(pairs),
        nodes=_slowness(ranks, judgement.nodes),
        links=_slowness(ranks, judgement.links),
        noise=judgement.noise,
        detectable_node=judgement.detectable_node,
        detectable_link=judgement.detectable_link,
    )
    return pairwise, judgement.ask_again


_ACTIONS = {
    1: "check its network card, cable and switch port",
    2: "check the switches and cables between them, and what else uses these",
}
"""By how many nodes it is about. A node's own card and cable slow all of its pairs, not one."""


def _slowness(ranks: Sequence[int], effects: Sequence[Effect]) -> tuple[Slowness, ...]:
    return tuple(
        Slowness(
            nodes=tuple(ranks[place] for place in effect.nodes),
            share=effect.share,
            low=effect.low,
            high=effect.high,
            is_bad=effect.is_bad,
            is_suspect=effect.is_suspect,
            action=_ACTIONS[len(effect.nodes)] if effect.is_bad else "",
            disposition=Disposition.RETEST if effect.is_bad else None,
        )
        for effect in effects
    )


def _verdict(ranks: Sequence[int], names: Mapping[int, str], judgement: Judgement) -> str:
    if judgement.status is PairwiseStatus.CANNOT_TELL:
        return f"cannot tell whether a node or a link is slow: {judgement.reason}"
    effects = [
        effect
        for effect in (*judgement.nodes, *judgement.links)
        if effect.is_bad or effect.is_suspect
    ]
    of = {effect: named([ranks[place] for place in effect.nodes], names) for effect in effects}
    bad = [
        f"{of[effect]} takes {format_percent(effect.share, 0)} more time"
        for effect in effects
        if effect.is_bad
    ]
    if bad:
        return "; ".join(bad)
    if judgement.status is PairwiseStatus.UNCLEAR:
        return "unclear: " + "; ".join(f"{of[effect]} seems slow" for effect in effects)
    return "no slow node and no slow link"


def _failed_pairs(
    ranks: Sequence[int], names: Mapping[int, str], errors: Mapping[Pair, str]
) -> str:
    """The nodes none of whose pairs worked, then the other pairs that did not."""
    parts = Counter(place for pair in errors for place in pair)
    others = len(ranks) - 1
    dead = [place for place, count in sorted(parts.items()) if count == others and others > 1]
    if len(dead) == len(ranks):
        dead = []  # nothing works: no node stands out
    texts = [
        f"{named([ranks[place]], names)} has no working link to any other node" for place in dead
    ]
    for pair, error in sorted(errors.items()):
        if not set(pair) & set(dead):
            texts.append(f"{named([ranks[place] for place in pair], names)} does not work: {error}")
    return "; ".join(texts)


def judge_fleet(
    nodes: Sequence[FleetNode],
    collective: CollectiveFacts | None,
    rails: Sequence[Pairwise] = (),
    *,
    slow: Sequence[SlowRail] = (),
    left_out: Sequence[int] = (),
    networks_left_out: Sequence[str] = (),
    networks: Mapping[int, Sequence[str]] = {},
    speeds: FleetSpeeds | None = None,
    policy: Policy | None = None,
) -> FleetValidation:
    """Everything together.

    Args:
        nodes: Every node's own checks.
        collective: Over all nodes; ``None`` where fewer than two take part.
        rails: All pairs of nodes, with each GPU in turn; over gloo in each network.
        slow: Rails that are slow between all nodes.
        left_out: GPUs that were not measured.
        networks_left_out: Networks that were not measured.
        networks: Those that most nodes are in, of each node by its rank.
        speeds: Of all nodes, where they were measured.
        policy: What *keep* asks for; ``None`` where no acceptance was asked for.
    """
    unfit = [node for node in nodes if not node.fit or (policy and has_fault(node))]
    problems = [
        f"{named([node.node_rank], {node.node_rank: node.hostname})}: {problem(node)}"
        for node in unfit
    ]
    problems += [
        f"{named([node.node_rank], {node.node_rank: node.hostname})}: its clock is {node_clock(node)}"
        for node in nodes
        if abs(node.clock_offset_seconds or 0.0) > MAX_CLOCK_OFFSET_SECONDS
    ]
    if collective is not None and (collective.error is not None or collective.wrong_elements):
        reason = collective.error or f"{collective.wrong_elements:,} wrong elements"
        problems.append(f"the collective over all nodes failed: {reason}")
    problems += [
        f"{pairwise.verdict}{rail_name(pairwise)}" for pairwise in rails if not pairwise.fit
    ]
    problems += [slow_rail_text(each) for each in slow]
    if speeds is not None:
        problems += slow_speeds(speeds, {node.node_rank: node.hostname for node in nodes})
    pairwise = None
    if rails:
        pairwise = rails[0]
    differences = compare_nodes(nodes, networks)
    disposition = fleet_disposition(nodes, speeds, has_problems=bool(problems))
    verdict = f"All {len(nodes)} nodes are fit."
    if problems:
        said = "Not fit" if policy is None else disposition.value.capitalize()
        verdict = f"{said}: {'; '.join(problems)}."
    elif policy is not None:
        verdict = without_faults(nodes, verdict, disposition)
    return FleetValidation(
        fit=not problems,
        disposition=disposition,
        verdict=verdict,
        policy=policy,
        nodes=tuple(
            node.model_copy(update={"disposition": node_disposition(node, speeds, rails)})
            for node in nodes
        ),
        differences=differences,
        collective=collective,
        pairwise=pairwise,
        rails=tuple(rails[1:]),
        slow_rails=tuple(slow),
        rails_left_out=tuple(left_out),
        networks_left_out=tuple(networks_left_out),
        speeds=speeds,
    )


def rail_name(pairwise: Pairwise) -> str:
    """Which GPUs or network took part, to be appended; empty where the nodes have one network."""
    if pairwise.network:
        return f" (network {pairwise.network})"
    if pairwise.rail is None:
        return ""
    return f" (rail {pairwise.rail}: GPU {pairwise.rail} of each node)"


def slow_rail_text(slow: SlowRail) -> str:
    """What is said of a rail that is slow between all nodes."""
    return (
        f"rail {slow.rail} (GPU {slow.rail} of each node) takes {format_percent(slow.share, 0)} more "
        "time than the other rails between all nodes"
    )
