"""Which node or link is slow: schedule, verdicts on simulated fleets whose truth is known, and what
is refused."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from torchscale.features.validate.fleet.pair_judgement import Judgement
from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.features.validate.fleet.pair_rounds import disjoint_rounds, rounds
from torchscale.features.validate.fleet.pairwise import judge_pairs, most_faults
from torchscale.schema.node.fleet import PairwiseStatus

SLOW = 0.3


def fleet(
    nodes: int,
    *,
    bad_nodes: tuple[int, ...] = (),
    bad_links: tuple[Pair, ...] = (),
    slow: float = SLOW,
    noise: float = 0.03,
    seed: int = 0,
    repeats: int = 5,
    slower_bounds: bool = False,
) -> dict[Pair, list[float]]:
    """Times of all pairs: sound nodes differ by 1 %."""
    generator = np.random.default_rng(seed)
    sound = generator.normal(0, 0.01, nodes)
    times = {}
    for pair in combinations(range(nodes), 2):
        of_nodes = sum(node in bad_nodes for node in pair)
        steps = (min(of_nodes, 1) if slower_bounds else of_nodes) + (pair in bad_links)
        log = (
            sound[list(pair)].sum() + steps * math.log1p(slow) + generator.normal(0, noise, repeats)
        )
        times[pair] = np.exp(log).tolist()
    return times


def named(judgement: Judgement) -> tuple[tuple[int, ...], tuple[Pair, ...]]:
    return judgement.bad_nodes, judgement.bad_links


@pytest.mark.parametrize("nodes", [*range(18), 128])
def test_rounds_hold_every_pair_once_and_no_node_twice(nodes: int) -> None:
    schedule = rounds(nodes)
    assert sorted(pair for pairs in schedule for pair in pairs) == list(
        combinations(range(nodes), 2)
    )
    for pairs in schedule:
        ends = [node for pair in pairs for node in pair]
        assert len(ends) == len(set(ends)) == nodes - nodes % 2
    assert len(schedule) == (0 if nodes < 2 else nodes - 1 + nodes % 2)


@pytest.mark.parametrize("nodes", [4, 5, 6, 7, 9, 12, 16])
@pytest.mark.parametrize(
    ("bad_nodes", "bad_links"),
    [((), ((0, 1),)), ((2,), ()), ((), ((0, 1), (2, 3))), ((), ((0, 1), (0, 3)))],
    ids=["link", "node", "two links", "two links of a node"],
)
def test_what_is_bad_is_named(
    nodes: int, bad_nodes: tuple[int, ...], bad_links: tuple[Pair, ...]
) -> None:
    judged = [
        judge_pairs(
            nodes, fleet(nodes, bad_nodes=bad_nodes, bad_links=bad_links, noise=0.02, seed=seed)
        )
        for seed in range(20)
    ]
    if len(bad_nodes) + len(bad_links) > most_faults(nodes):
        assert all(named(each) == ((), ()) for each in judged)
        assert sum(each.status is PairwiseStatus.CANNOT_TELL for each in judged) >= 18
        return
    right = [each for each in judged if named(each) == (bad_nodes, bad_links)]
    assert len(right) >= 18  # false alarms on top, in at most one of a hundred fleets
    assert all(each.status is PairwiseStatus.BAD for each in right)


@pytest.mark.parametrize(("nodes", "disturbed"), [(4, (0, 1)), (9, (2, 7)), (3, (0, 2))])
def test_what_disturbs_all_repeats_of_one_moment_is_measured_again(
    nodes: int, disturbed: Pair
) -> None:
    """Repeats are a few milliseconds apart; what slows a host for a second slows all of them
    alike."""
    for seed in range(20):
        times = fleet(nodes, bad_links=(disturbed,), noise=0.02, seed=seed)
        judged = judge_pairs(nodes, times, repeated=())
        assert disturbed in judged.ask_again
        later = fleet(nodes, noise=0.02, seed=100 + seed, repeats=10)
        for pair in judged.ask_again:
            times[pair] += later[pair]
        again = judge_pairs(nodes, times, repeated=judged.ask_again)
        assert named(again) == ((), ())
        assert again.status is not PairwiseStatus.CANNOT_TELL


def test_what_is_slow_at_two_moments_is_named_and_not_measured_a_third_time() -> None:
    times = fleet(4, bad_links=((0, 1),), noise=0.02, repeats=15)
    judged = judge_pairs(4, times, repeated=[(0, 1)])
    assert (named(judged), judged.ask_again) == (((), ((0, 1),)), ())


@pytest.mark.parametrize("slower_bounds", [False, True])
@pytest.mark.parametrize("nodes", [6, 9])
def test_two_bad_nodes_whether_their_slowness_adds_up_or_not(
    nodes: int, slower_bounds: bool
) -> None:
    judged = [
        judge_pairs(
            nodes,
            fleet(nodes, bad_nodes=(1, 4), noise=0.02, seed=seed, slower_bounds=slower_bounds),
        )
        for seed in range(20)
    ]
    assert sum(named(each) == ((1, 4), ()) for each in judged) >= 18
    assert all(
        (1, 4) not in {link.nodes for link in each.links}
        for each in judged
        if each.bad_nodes == (1, 4)
    )


@pytest.mark.parametrize("slower_bounds", [False, True])
@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
@pytest.mark.parametrize("nodes", [4, 5])
def test_few_nodes_of_which_two_are_bad_are_not_judged(
    nodes: int, noise: float, slower_bounds: bool
) -> None:
    judged = [
        judge_pairs(
            nodes,
            fleet(nodes, bad_nodes=(0, 1), noise=noise, seed=seed, slower_bounds=slower_bounds),
        )
        for seed in range(60)
    ]
    assert all(named(each) == ((), ()) for each in judged)  # no sound link is blamed
    assert sum(each.status is PairwiseStatus.CANNOT_TELL for each in judged) >= 57
    assert all(each.reason for each in judged if each.status is PairwiseStatus.CANNOT_TELL)


@pytest.mark.parametrize("nodes", [3, 4, 5, 6, 7])
def test_sets_of_so_many_faults_are_distinct(nodes: int) -> None:
    """Every set of as many columns (nodes and links) as two sets of faults hold is independent,
    beside the constant; some set of the next even number is not."""
    pairs = list(combinations(range(nodes), 2))
    columns = [[float(node in pair) for pair in pairs] for node in range(nodes)]
    columns += [[float(pair == link) for pair in pairs] for link in pairs]

    def independent(count: int) -> bool:
        constant = [1.0] * len(pairs)
        return all(
            np.linalg.matrix_rank(np.array([constant, *chosen])) == count + 1
            for chosen in combinations(columns, count)
        )

    most = most_faults(nodes)
    if nodes < 6:
        assert independent(2 * most)
        assert not independent(2 * most + 2)
    # the relations that set the limit: every node, and a node against its links
    assert np.linalg.matrix_rank(np.array([[1.0] * len(pairs), *columns[:nodes]])) == nodes
    star = [column for column, pair in zip(columns[nodes:], pairs, strict=True) if 0 in pair]
    assert np.linalg.matrix_rank(np.array([columns[0], *star])) == nodes - 1


@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_sound_fleets_are_left_in_peace(noise: float) -> None:
    judged = [
        judge_pairs(nodes, fleet(nodes, noise=noise, seed=seed))
        for nodes in (4, 8)
        for seed in range(200)
    ]
    alarms = [each for each in judged if named(each) != ((), ())]
    assert len(alarms) <= 8  # 2 % of 400
    assert sum(each.status is PairwiseStatus.NONE for each in judged) >= 360


def test_a_small_slowness_is_no_fault() -> None:
    judgement = judge_pairs(
        8, fleet(8, bad_nodes=(3,), bad_links=((0, 1),), slow=0.05, noise=0.002)
    )
    assert judgement.status is PairwiseStatus.NONE


def test_intervals_hold_the_truth() -> None:
    judged = [
        judge_pairs(8, fleet(8, bad_nodes=(3,), bad_links=((0, 1),), seed=seed))
        for seed in range(40)
    ]
    nodes = [effect for each in judged for effect in each.nodes if effect.nodes == (3,)]
    links = [effect for each in judged for effect in each.links if effect.nodes == (0, 1)]
    for effects in (nodes, links):
        assert (
            sum(effect.low <= SLOW <= effect.high for effect in effects) >= 34
        )  # 95 % of 40 are 38
    assert all(
        each.nodes[0].nodes == (3,) and each.links[0].nodes == (0, 1) for each in judged
    )  # the slowest first


def test_noise_is_admitted() -> None:
    quiet = judge_pairs(6, fleet(6, noise=0.02))
    loud = judge_pairs(6, fleet(6, bad_links=((0, 1),), noise=0.4))
    assert quiet.detectable_link is not None
    assert quiet.detectable_link < SLOW
    assert loud.detectable_link is not None
    assert loud.detectable_link > SLOW
    assert loud.status is not PairwiseStatus.BAD


def test_what_is_not_certain_is_measured_again() -> None:
    judged = [
        judge_pairs(6, fleet(6, bad_links=((0, 1),), slow=0.2, noise=0.1, seed=seed))
        for seed in range(60)
    ]
    unclear = [each for each in judged if each.status is PairwiseStatus.UNCLEAR]
    assert unclear
    assert all(each.ask_again for each in unclear)
    assert sum((0, 1) in each.ask_again for each in unclear) > len(unclear) / 2


def test_two_nodes_tell_nothing() -> None:
    judgement = judge_pairs(2, {(0, 1): [1.0, 1.1, 1.0]})
    assert judgement.status is PairwiseStatus.CANNOT_TELL
    assert "two nodes" in judgement.reason


def test_three_nodes_tell_that_something_is_slow_and_not_what() -> None:
    assert judge_pairs(3, fleet(3, noise=0.02)).status is PairwiseStatus.NONE
    for slow in (fleet(3, bad_nodes=(1,), noise=0.02), fleet(3, bad_links=((0, 2),), noise=0.02)):
        judgement = judge_pairs(3, slow)
        assert judgement.status is PairwiseStatus.CANNOT_TELL
        assert named(judgement) == ((), ())
        assert "add a fourth" in judgement.reason
        assert any(effect.is_suspect for effect in (*judgement.nodes, *judgement.links))


def test_a_fleet_of_128_nodes() -> None:
    links = ((0, 1), (5, 77), (100, 127))
    judgement = judge_pairs(128, fleet(128, bad_nodes=(64,), bad_links=links, noise=0.05))
    assert named(judgement) == ((64,), links)
    assert len(judgement.links) == 128 * 127 // 2


def test_equal_times_without_any_noise() -> None:
    pairs = list(combinations(range(5), 2))
    assert judge_pairs(5, {pair: [2.0] * 3 for pair in pairs}).status is PairwiseStatus.NONE
    slow = judge_pairs(5, {pair: [4.0] * 3 if pair == (1, 3) else [2.0] * 3 for pair in pairs})
    assert slow.bad_links == ((1, 3),)
    assert slow.links[0].share == pytest.approx(1.0, abs=0.02)


def test_numbers_of_nodes_do_not_matter() -> None:
    times = fleet(7, bad_nodes=(2,), bad_links=((0, 6),), noise=0.02)
    order = [4, 2, 6, 0, 5, 1, 3]
    renamed = {(min(order[i], order[j]), max(order[i], order[j])): times[i, j] for i, j in times}
    assert named(judge_pairs(7, times)) == ((2,), ((0, 6),))
    assert named(judge_pairs(7, renamed)) == ((6,), ((3, 4),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({(0, 1): [1.0]}, "at least 3"),
        ({(0, 1): [1.0, 0.0, 1.0]}, "positive"),
        ({(0, 1): [1.0, 1.0, math.nan]}, "positive"),
        ({(0, 1): [1.0, 1.0, math.inf]}, "positive"),
        ({(1, 0): [1.0, 1.0]}, "expected times of each"),
        ({(0, 9): [1.0, 1.0]}, "expected times of each"),
    ],
)
def test_other_times_are_refused(change: dict[Pair, list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge_pairs(4, {**fleet(4), **change})
    with pytest.raises(ValueError, match="expected times of each"):
        judge_pairs(5, fleet(4))


def test_some_pairs_are_measured_in_rounds_without_a_node_twice() -> None:
    assert disjoint_rounds({(0, 1), (0, 2), (2, 3), (1, 3)}) == (((0, 1), (2, 3)), ((0, 2), (1, 3)))
    assert disjoint_rounds(()) == ()
