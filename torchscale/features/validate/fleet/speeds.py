"""Speeds of the nodes of a fleet, each measured by itself at the same time: which node is slow for
the others, and which device for the devices of all nodes. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.estimate import Estimate, from_log
from torchscale.analysis.stats.peers import PeerLimit
from torchscale.features.validate.acceptance.causes import CauseQuestion, Explanation, explain
from torchscale.features.validate.acceptance.estimates import log_level
from torchscale.features.validate.acceptance.limits import DISK, NODE
from torchscale.features.validate.acceptance.peers import (
    DISK_SPREAD,
    FEW_NODES,
    MIN_NODES,
    NODE_SPREAD,
    node_limit,
    peer_limit,
)
from torchscale.features.validate.acceptance.rounds import undisturbed
from torchscale.features.validate.acceptance.verdict import what_to_do
from torchscale.features.validate.fleet.reports import copies
from torchscale.features.validate.fleet.setup_differences import (
    other_cpus,
    other_power,
    other_versions,
    usual_quota,
)
from torchscale.schema.node.acceptance import (
    AcceptanceRun,
    Cause,
    LimitKind,
    Series,
)
from torchscale.schema.node.fleet import FleetFigure, FleetSpeeds
from torchscale.schema.node.policy import MIN_ROUNDS, Policy
from torchscale.schema.node.validation import Disposition
from torchscale.util.words import plural

FASTER = 1.2
"""Times the others' rate from which on a node or part is not compared with them: sound ones of one
name lie within some 8 % of each other."""
IMPLAUSIBLE = 10.0
"""Times the others' rate that no node of the same devices reaches: it has not measured that."""
_MOST_LOG = 100.0
"""Of a factor that is shown."""
OF_DISK = "disk"
"""The part of figures of a node's disk."""
_MIN_PARTS = 3
"""Fewer parts have no middle that one of them differs from."""
_OTHERS = {NODE: "the other nodes are", OF_DISK: "the other nodes' disks are"}

Kind = tuple[str, str]
"""A figure, and the name of the device that it is of: what compares."""


@dataclass(frozen=True)
class _Level:
    """A figure of a node or part: the logarithm of its level, and the one that it is compared
    by."""

    node_rank: int
    series: Series
    level: Estimate
    compared: float


def judge_speeds(
    runs: Mapping[int, AcceptanceRun],
    power_limits: Mapping[int, Mapping[str, float]],
    return_percent: float = Policy().return_percent,
) -> FleetSpeeds:
    """The figures of all nodes.

    Args:
        runs: What each node measured, by its rank.
        power_limits: Watts of each GPU by UUID, by node rank.
        return_percent: How far below the others a node or part is returned.
    """
    left_out: list[str] = []
    same = copies(runs)
    compared = {rank: run for rank, run in runs.items() if not any(rank in pair for pair in same)}
    levels = {rank: _levels(run) for rank, run in compared.items()}
    for rank, run in runs.items():
        if len(undisturbed(run)) < MIN_ROUNDS:
            left_out.append(
                f"node {rank}: {len(undisturbed(run))} undisturbed rounds of {len(run.rounds)}"
            )
    of_nodes = _grouped(each for rank, found in levels.items() for each in _of_node(rank, found))
    of_parts = _grouped(each for rank, found in levels.items() for each in _of_parts(rank, found))
    implausible: dict[int, list[str]] = {}
    for kind, group in of_nodes.items():
        of_nodes[kind], faster = _without_faster(group)
        for each, factor in faster:
            left_out.append(f"{kind[0]} of node {each.node_rank}: {factor:.3g} times the others'")
            if factor > IMPLAUSIBLE:
                implausible.setdefault(each.node_rank, []).append(kind[0])
    for kind, group in of_parts.items():
        of_parts[kind], _ = _without_faster(_without_a_majority(group))
    groups = [*of_nodes.values(), *of_parts.values()]
    # what one node alone has is held against nobody
    tests = max(1, sum(map(len, filter(_is_shared, groups))))
    figures: list[FleetFigure] = []
    for kind, group in of_nodes.items():
        limit = node_limit([each.compared for each in group], tests, _assumed_spread(group))
        if limit is None:
            left_out.append(f"{kind[0]}: {plural(len(group), 'node')}, {MIN_NODES} are needed")
        else:
            figures += _figures(group, limit, runs, power_limits, return_percent)
    for group in of_parts.values():
        limit = peer_limit([each.compared for each in group], tests)
        if limit is not None:
            figures += _figures(group, limit, runs, power_limits, return_percent)
    figures.sort(key=lambda each: (not each.is_low, -each.deficit))
    return FleetSpeeds(
        nodes=len(runs),
        figures=tuple(figures),
        left_out=tuple(left_out),
        copies=tuple(same),
        implausible={rank: tuple(found) for rank, found in implausible.items()},
    )


def _without_faster(
    group: Sequence[_Level],
) -> tuple[list[_Level], list[tuple[_Level, float]]]:
    """What can be compared; and what is so much faster than the middle of the others that it is of
    another kind or not true, with the factor. It would widen the spread that a slow one is judged
    by. Of more than a third it cannot be told."""
    kept, faster = sorted(group, key=lambda each: each.compared), []
    for _ in range((len(group) - 1) // 3):
        *others, fastest = kept
        above = fastest.compared - statistics.median(each.compared for each in others)
        if above <= math.log(FASTER):
            break
        kept = others
        faster.append((fastest, math.exp(min(above, _MOST_LOG))))
    places = {id(each) for each in kept}
    return [each for each in group if id(each) in places], faster


def _is_shared(group: Sequence[_Level]) -> bool:
    return len({each.node_rank for each in group}) > 1


def _without_a_majority(group: Sequence[_Level]) -> list[_Level]:
    """The parts without those of a node that has more of them than all others together: what parts
    differ by is not for one node to say."""
    counts = Counter(each.node_rank for each in group)
    (most, count), *others = counts.most_common()
    if not others or count <= len(group) - count:
        return list(group)
    return [each for each in group if each.node_rank != most]


def _levels(run: AcceptanceRun) -> dict[Kind, list[tuple[Series, Estimate]]]:
    """The levels of a run's series over its undisturbed rounds, by figure and device."""
    rounds = undisturbed(run)
    found: dict[Kind, list[tuple[Series, Estimate]]] = {}
    for series in run.series:
        values = [value for it in rounds if (value := series.values[it]) is not None]
        if len(values) >= MIN_ROUNDS:
            key = (series.figure, series.device)
            found.setdefault(key, []).append((series, log_level(values)))
    return found


def _of_node(
    rank: int, levels: Mapping[Kind, Sequence[tuple[Series, Estimate]]]
) -> Iterator[_Level]:
    """The part in the middle speaks for the node: one that is slow does not make the node slow."""
    for parts in levels.values():
        ordered = sorted(parts, key=lambda part: part[1].value)
        series, level = ordered[len(ordered) // 2]
        middle = statistics.median(each.value for _, each in parts)
        part = OF_DISK if series.figure.startswith(DISK) else NODE
        yield _Level(rank, series.model_copy(update={"part": part}), level, middle)


def _of_parts(
    rank: int, levels: Mapping[Kind, Sequence[tuple[Series, Estimate]]]
) -> Iterator[_Level]:
    """Each part by how far it is from the middle of its node: what slows a node is not the fault of
    each of its devices."""
    for parts in levels.values():
        if len(parts) < _MIN_PARTS:
            continue
        middle = statistics.median(each.value for _, each in parts)
        for series, level in parts:
            yield _Level(rank, series, level, level.value - middle)


def _assumed_spread(group: Sequence[_Level]) -> float:
    """Of the logarithms of sound nodes' rates, where the nodes are few."""
    if group[0].series.part == OF_DISK:
        return DISK_SPREAD
    return NODE_SPREAD


def _grouped(levels: Iterator[_Level]) -> dict[Kind, list[_Level]]:
    found: dict[Kind, list[_Level]] = {}
    for each in levels:
        found.setdefault((each.series.figure, each.series.device), []).append(each)
    return found


def _figures(
    group: Sequence[_Level],
    limit: PeerLimit,
    runs: Mapping[int, AcceptanceRun],
    power_limits: Mapping[int, Mapping[str, float]],
    return_percent: float,
) -> Iterator[FleetFigure]:
    allowed = limit.median - limit.limit
    for place, each in enumerate(group):
        rate = each.level.through(from_log)
        least, most = rate.bounds
        # the interval of what is noisier than the others must be below the limit too
        own = each.level.bounds[1] - each.level.value
        low = place in limit.low and each.compared + own < limit.limit
        figure = FleetFigure(
            node_rank=each.node_rank,
            figure=each.series.figure,
            part=each.series.part,
            unit=each.series.unit,
            rounds=rate.count,
            rate=rate.value,
            low=least,
            high=most,
            deficit=-math.expm1(each.compared - limit.median),
            limit=-math.expm1(-allowed),
            is_low=low,
        )
        if low:
            found = _explained(each, runs, power_limits)
            run = runs[each.node_rank]
            figure = figure.model_copy(
                update={
                    "cause": found.cause,
                    "because": found.because,
                    "action": found.action,
                    "disposition": _disposition(
                        figure, found.cause, run, len(group), return_percent
                    ),
                }
            )
        yield figure


def _disposition(
    figure: FleetFigure, cause: Cause, run: AcceptanceRun, nodes: int, return_percent: float
) -> Disposition:
    """As of a figure of one node; but no node is returned for what a few others do, and none for its
    disk, whose rate is also that of its files and of whoever else uses it."""
    if figure.part == OF_DISK or (figure.part == NODE and nodes < FEW_NODES):
        return Disposition.RETEST
    return what_to_do(cause, figure.rounds, figure.deficit, run, return_percent)


def _explained(
    level: _Level,
    runs: Mapping[int, AcceptanceRun],
    power_limits: Mapping[int, Mapping[str, float]],
) -> Explanation:
    """Host or set-up, by the node's own rounds, then by what its set-up differs in from the other
    nodes'."""
    run = runs[level.node_rank]
    if level.series.part == NODE:
        found = (
            other_cpus(level.node_rank, runs)
            or other_power(level.node_rank, power_limits)
            or other_versions(level.node_rank, runs)
        )
        if found is not None:
            return found
    question = CauseQuestion(
        level.series,
        undisturbed(run),
        kind=LimitKind.PEERS,
        others=_OTHERS.get(level.series.part, "the devices of all nodes are"),
        usual_quota=usual_quota(runs),
    )
    watts = {uuid: limit for limits in power_limits.values() for uuid, limit in limits.items()}
    return explain(question, run, None, watts)
