"""``validate`` over several nodes on the terminal."""

from __future__ import annotations

import io
from itertools import combinations
from typing import Any

from rich.console import Console

from tests.features.validate.fleet.test_fleet import NAMES, fleet_node, times, with_driver
from tests.features.validate.fleet.test_speeds import fleet, with_an_unsteady_node
from tests.features.validate.health.test_node import with_gpu
from torchscale.features.validate.fleet.fleet import judge_fleet, judge_pairwise
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.fleet.tables import print_fleet, print_fleet_fixes
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.schema.node.fleet import FleetValidation, SlowRail
from torchscale.schema.node.probe import CollectiveFacts


def printed(fleet: FleetValidation, show: Any = print_fleet) -> list[str]:
    """Lines, 160 characters wide."""
    out = io.StringIO()
    show(fleet, Console(file=out, width=160))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_what_differs_comes_first_and_the_verdict_last() -> None:
    nodes = [fleet_node(rank) for rank in range(8)] + [with_driver(8, "470.1")]
    lines = printed(
        judge_fleet(nodes, CollectiveFacts(backend="nccl", world_size=72, seconds=0.001))
    )
    assert lines[:2] == ["Differences between nodes", "what value nodes"]
    assert lines[2] == "driver 470.1 8 (n8)"
    assert lines[3].endswith("0 (n0), 1 (n1), 2 (n2), 3 (n3), 4 (n4) and 3 more")
    assert (
        "collective over all nodes: nccl, 72 ranks: every element exact; 1 MiB in 1.00 ms" in lines
    )


def test_parts_that_are_not_kept_are_told_with_their_node() -> None:
    judged = validate_facts(with_gpu(remapping_failed=True), Requirements())
    bad = fleet_node(1, validation=judged)
    lines = printed(judge_fleet([fleet_node(0), bad], None, ()))
    (told,) = (line for line in lines if line.startswith("return "))
    assert told.startswith("return 1 (n1) GPU ")
    assert "replace the GPU" in told


def test_slow_links_are_ranked() -> None:
    pairwise, _ = judge_pairwise(
        [0, 1, 2, 3], NAMES, times(4, {(1, 3): 1.6}, 1), {}, backend="gloo", message_bytes=4 << 20
    )
    lines = printed(judge_fleet([fleet_node(rank) for rank in range(4)], None, [pairwise]))
    assert lines[0] == "no difference between the 4 checked nodes"
    assert "all pairs: 6 all-reduces of 4.00 MiB over gloo" in lines
    (slow,) = (line for line in lines if "SLOW" in line)
    assert slow.startswith("1 (n1) – 3 (n3) ")
    assert lines[-1].startswith("Not fit: link of nodes 1 (n1) and 3 (n3) takes ")


def test_pairs_that_failed_are_listed_and_of_two_nodes_the_median_is_shown() -> None:
    errors = dict.fromkeys(combinations(range(3), 2), "timed out")
    failed, _ = judge_pairwise([0, 1, 2], NAMES, {}, errors, backend="gloo", message_bytes=4)
    nodes = [fleet_node(rank) for rank in range(3)]
    assert "0 (n0) – 2 (n2): timed out" in printed(judge_fleet(nodes, None, [failed]))
    two, _ = judge_pairwise(
        [0, 1], NAMES, {(0, 1): (0.01, 0.02, 0.03)}, {}, backend="gloo", message_bytes=4
    )
    assert "0 (n0) – 1 (n1): median 20.0 ms" in printed(judge_fleet(nodes[:2], None, [two]))


def test_commands_that_fix_come_under_the_name_of_their_node() -> None:
    without_persistence = validate_facts(with_gpu(persistence=False), Requirements())
    fleet = judge_fleet([fleet_node(0), fleet_node(1, validation=without_persistence)], None)
    lines = printed(fleet, print_fleet_fixes)
    assert [line for line in lines if line in ("0 (n0)", "1 (n1)")] == ["1 (n1)"]
    assert "sudo nvidia-smi -i 1 -pm 1" in lines[lines.index("1 (n1)") + 1 :]


def test_further_rails_take_a_line_where_nothing_is_slow() -> None:
    rails = [
        judge_pairwise(
            [0, 1, 2, 3],
            NAMES,
            times(4, {(1, 3): 1.6} if rail == 2 else {}, rail),
            {},
            backend="nccl",
            message_bytes=64 << 20,
            rail=rail,
            rails=3,
        )[0]
        for rail in range(3)
    ]
    nodes = [fleet_node(rank) for rank in range(4)]
    slow = [SlowRail(rail=1, share=0.25)]
    lines = printed(judge_fleet(nodes, None, rails, slow=slow, left_out=[3, 4]))
    measured = "all pairs: 6 all-reduces of 64.0 MiB over nccl"
    assert f"{measured} (rail 0: GPU 0 of each node)" in lines
    assert "no slow node and no slow link (rail 1: GPU 1 of each node)" in lines
    assert not any(line.startswith(measured) and "rail 1" in line for line in lines)
    assert f"{measured} (rail 2: GPU 2 of each node)" in lines
    assert any(
        line.startswith("rail 1 (GPU 1 of each node) takes 25 % more time") for line in lines
    )
    assert "rails not measured: 3, 4" in lines


def test_slow_nodes_are_ranked_with_their_interval_and_what_to_do() -> None:
    speeds = judge_speeds(fleet(8, {5: 0.85}), {})
    nodes = [fleet_node(rank) for rank in range(8)]
    lines = printed(judge_fleet(nodes, None, speeds=speeds))
    ranked = [line for line in lines if " node training " in line]
    assert len(ranked) == 8
    assert ranked[0].startswith("5 (n5)")
    assert ranked[0].endswith("LOW (host)")
    assert any(line.startswith("return 5 (n5), node: have the host looked at") for line in lines)
    assert lines[-1] == "Not fit: node 5 (n5) is slow: training 15 % below the others."


def test_a_slow_link_has_an_action_and_a_network_where_there_are_several() -> None:
    slow, _ = judge_pairwise(
        [0, 1, 2, 3],
        NAMES,
        times(4, {(1, 3): 1.6}, 1),
        {},
        backend="gloo",
        message_bytes=4 << 20,
        network="10.1.0.0/16",
    )
    fleet = judge_fleet(
        [fleet_node(rank) for rank in range(4)],
        None,
        [slow],
        networks_left_out=["10.2.0.0/16"],
    )
    lines = printed(fleet)
    assert "all pairs: 6 all-reduces of 4.00 MiB over gloo (network 10.1.0.0/16)" in lines
    (told,) = (line for line in lines if line.startswith("retest "))
    assert told.startswith("retest link 1 (n1) – 3 (n3): check the switches and cables")
    assert "networks not measured: 10.2.0.0/16" in lines
    assert "more time (network 10.1.0.0/16)" in lines[-1]


def test_a_figure_below_its_limit_without_certainty_is_marked() -> None:
    runs = with_an_unsteady_node()
    lines = printed(
        judge_fleet([fleet_node(rank) for rank in range(4)], None, speeds=judge_speeds(runs, {}))
    )
    (marked,) = (line for line in lines if line.endswith("unclear"))
    assert marked.startswith("1 (n1) node training ")


def test_what_three_nodes_tell_nothing_of_has_no_interval() -> None:
    seconds = {(0, 1): (0.01,) * 5, (0, 2): (0.01,) * 5, (1, 2): (0.05,) * 5}
    pairwise, _ = judge_pairwise(
        [0, 1, 2], NAMES, seconds, {}, backend="gloo", message_bytes=4 << 20
    )
    lines = printed(judge_fleet([fleet_node(rank) for rank in range(3)], None, [pairwise]))
    assert max(map(len, lines)) < 160
    assert any("not known" in line for line in lines)
