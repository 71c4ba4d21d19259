"""What several nodes' checks say together: differences, slow pairs by name, the verdict."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, noisy
from tests.features.validate.health.test_node import node as facts
from torchscale.features.validate.fleet.differences import compare_nodes
from torchscale.features.validate.fleet.document import fleet_document
from torchscale.features.validate.fleet.fleet import judge_fleet, judge_pairwise
from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.features.validate.fleet.pairwise import judge_pairs
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.report.formats.markdown import render_markdown
from torchscale.schema.node.fleet import FleetNode, PairwiseStatus, SlowRail
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.node.validation import Disposition

NAMES = {0: "n0", 1: "n1", 2: "n2", 3: "n3", 5: "n5"}


def fleet_node(rank: int, gpus: int = 8, **changes: Any) -> FleetNode:
    """A sound node with eight GPUs."""
    validation = validate_facts(facts(gpus), Requirements())
    values: dict[str, Any] = {
        "node_rank": rank,
        "hostname": f"n{rank}",
        "address": f"10.0.0.{rank + 1}",
    }
    return FleetNode(**{**values, "validation": validation, **changes})


def with_driver(rank: int, version: str) -> FleetNode:
    """A node with another driver."""
    node = facts(8)
    assert node.driver is not None
    changed = node.model_copy(
        update={"driver": node.driver.model_copy(update={"version": version})}
    )
    return fleet_node(rank, validation=validate_facts(changed, Requirements()))


def times(nodes: int, slow: dict[Pair, float], seed: int) -> dict[Pair, tuple[float, ...]]:
    """Of all pairs: 10 ms and 2 % of noise, some pairs longer."""
    noise = np.random.default_rng(seed)
    return {
        pair: tuple((0.010 * slow.get(pair, 1.0) * np.exp(noise.normal(0, 0.02, 5))).tolist())
        for pair in combinations(range(nodes), 2)
    }


def test_equal_nodes_differ_in_nothing() -> None:
    assert compare_nodes([fleet_node(0), fleet_node(1, clock_offset_seconds=0.02)]) == ()


def test_causes_come_before_the_checks_that_they_change() -> None:
    differences = compare_nodes([fleet_node(0), with_driver(1, "470.1"), fleet_node(2, gpus=4)])
    titles = [difference.title for difference in differences]
    assert titles[:2] == ["driver", "GPUs"]
    values = {difference.title: difference.values for difference in differences}
    assert values["driver"][1] == "470.1"
    assert values["driver"][0] == values["driver"][2]
    assert values["GPUs"][2].startswith("4 × ")


def test_a_clock_is_compared_with_that_of_node_0_and_a_node_without_checks_is_no_difference() -> (
    None
):
    late = fleet_node(1, clock_offset_seconds=-2.0)
    absent = fleet_node(2, validation=None, error="it did not join")
    (difference,) = compare_nodes([fleet_node(0), late, absent])
    assert difference.title == "clock, against node 0"
    assert difference.values == ("equal", "2.0 s behind", "equal")


def test_a_network_that_a_node_lacks_is_a_difference() -> None:
    both, one = ("10.0.0.0/24", "10.1.0.0/24"), ("10.0.0.0/24",)
    nodes = [fleet_node(0), fleet_node(1), fleet_node(2)]
    (difference,) = compare_nodes(nodes, {0: both, 1: one, 2: both})
    assert difference.title == "networks"
    assert difference.values == (", ".join(both), "10.0.0.0/24", ", ".join(both))
    assert compare_nodes(nodes, dict.fromkeys(range(3), both)) == ()
    absent = fleet_node(3, validation=None, error="it did not join")
    assert compare_nodes([*nodes, absent], dict.fromkeys(range(3), both)) == ()


def test_a_slow_link_and_a_slow_node_are_named_by_their_hosts() -> None:
    slow_link, again = judge_pairwise(
        [0, 1, 2, 5], NAMES, times(4, {(1, 3): 1.6}, 1), {}, backend="gloo", message_bytes=4
    )
    assert (slow_link.status, again) == (PairwiseStatus.BAD, ())
    assert slow_link.verdict.startswith("link of nodes 1 (n1) and 5 (n5) takes ")
    assert slow_link.links[0].nodes == (1, 5)
    of_node = dict.fromkeys(((0, 2), (1, 2), (2, 3)), 1.6)
    slow_node, _ = judge_pairwise(
        [0, 1, 2, 5], NAMES, times(4, of_node, 2), {}, backend="gloo", message_bytes=4
    )
    assert slow_node.verdict.startswith("node 2 (n2) takes ")
    assert not slow_node.fit


def test_equal_pairs_name_nobody() -> None:
    pairwise, again = judge_pairwise(
        [0, 1, 2, 3], NAMES, times(4, {}, 3), {}, backend="gloo", message_bytes=4
    )
    assert (pairwise.verdict, pairwise.fit, again) == ("no slow node and no slow link", True, ())


def test_two_nodes_cannot_be_told_apart() -> None:
    pairwise, again = judge_pairwise(
        [0, 1], NAMES, times(2, {}, 4), {}, backend="gloo", message_bytes=4
    )
    assert (pairwise.status, pairwise.fit, again) == (PairwiseStatus.CANNOT_TELL, True, ())
    assert pairwise.verdict.startswith(
        "cannot tell whether a node or a link is slow: two nodes have one link"
    )


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ({(1, 2): "timed out"}, "link of nodes 1 (n1) and 2 (n2) does not work: timed out"),
        (
            dict.fromkeys(((0, 3), (1, 3), (2, 3)), "timed out"),
            "node 3 (n3) has no working link to any other node",
        ),
    ],
)
def test_pairs_without_times_are_a_failure_of_their_own(
    errors: dict[Pair, str], verdict: str
) -> None:
    measured = {pair: seconds for pair, seconds in times(4, {}, 5).items() if pair not in errors}
    pairwise, again = judge_pairwise(
        [0, 1, 2, 3], NAMES, measured, errors, backend="gloo", message_bytes=4
    )
    assert (pairwise.verdict, pairwise.fit, again) == (verdict, False, ())


def test_where_no_pair_works_each_is_named() -> None:
    errors = dict.fromkeys(combinations(range(3), 2), "timed out")
    pairwise, _ = judge_pairwise([0, 1, 2], NAMES, {}, errors, backend="gloo", message_bytes=4)
    assert pairwise.verdict.count("does not work: timed out") == 3


def test_the_verdict_names_what_is_wrong() -> None:
    assert judge_fleet([fleet_node(0), fleet_node(1)], None).verdict == "All 2 nodes are fit."
    nodes = [
        fleet_node(0),
        fleet_node(1, validation=None, error="it did not join"),
        fleet_node(2, clock_offset_seconds=9.0),
    ]
    wrong = CollectiveFacts(backend="gloo", world_size=2, wrong_elements=3)
    fleet = judge_fleet(nodes, wrong)
    assert not fleet.fit
    assert fleet.verdict == (
        "Not fit: node 1 (n1): it did not join; node 2 (n2): its clock is 9.0 s ahead; "
        "the collective over all nodes failed: 3 wrong elements."
    )


def test_the_verdict_names_node_link_and_rail() -> None:
    rails = [
        judge_pairwise(
            [0, 1, 2, 5],
            NAMES,
            times(4, {(1, 3): 1.6} if rail == 3 else {}, rail),
            {},
            backend="nccl",
            message_bytes=4,
            rail=rail,
            rails=8,
        )[0]
        for rail in range(4)
    ]
    slow = [SlowRail(rail=2, share=0.3)]
    fleet = judge_fleet(
        [fleet_node(rank) for rank in (0, 1, 2, 5)], None, rails, slow=slow, left_out=[4]
    )
    assert not fleet.fit
    assert fleet.verdict.startswith("Not fit: link of nodes 1 (n1) and 5 (n5) takes ")
    assert (
        "more time (rail 3: GPU 3 of each node); rail 2 (GPU 2 of each node) takes 30 % more"
        in (fleet.verdict)
    )
    assert fleet.pairwise is not None
    assert [fleet.pairwise.rail, *(each.rail for each in fleet.rails)] == [0, 1, 2, 3]
    assert (fleet.slow_rails, fleet.rails_left_out) == (tuple(slow), (4,))


def test_several_rails_share_the_probability_of_a_false_name() -> None:
    seconds = times(4, {(1, 3): 1.6}, 1)
    shares = [judge_pairs(4, seconds, fleets=fleets).detectable_link for fleets in (1, 1000)]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] < shares[1]


def test_a_node_that_is_slow_beside_the_others_is_not_kept() -> None:
    runs = {
        rank: a_run({("training", "node"): noisy(np.random.default_rng(rank), rate, 8)})
        for rank, rate in enumerate((9.0, 9.0, 7.0, 9.0, 9.0))
    }
    speeds = judge_speeds(runs, {})
    kept = {"disposition": Disposition.KEEP, "verdict": "Keep: put it into service."}
    nodes = [fleet_node(rank) for rank in runs]
    nodes = [
        node.model_copy(update={"validation": node.validation.model_copy(update=kept)})
        for node in nodes
        if node.validation is not None
    ]
    fleet = judge_fleet(nodes, None, speeds=speeds, policy=Policy())
    (low,) = speeds.low
    assert low.node_rank == 2
    said = [node.disposition for node in fleet.nodes]
    assert said[2] is low.disposition is not Disposition.KEEP
    assert {*said[:2], *said[3:]} == {Disposition.KEEP}
    document = render_markdown(fleet_document(fleet))
    assert f"4 keep, 1 {said[2].value}" in document
    assert document.count("Keep: put it into service.") == 4
