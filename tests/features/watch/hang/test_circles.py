"""Ranks that wait for each other in several groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.watch.hang.test_explain import IN_OWN_CODE, call, rank
from torchscale.features.watch.hang.collective_log import CollectiveCall, ProcessGroup
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.profiles.finding import Confidence


def pair(first: int, second: int) -> str:
    return f"{min(first, second)}-{max(first, second)}"


def circle_of(order: tuple[int, ...]) -> dict[int, tuple[str, str]]:
    """Rank → the group that it shares with the next rank of the circle, and that with the one
    before it."""
    size = len(order)
    return {
        number: (
            pair(number, order[(index + 1) % size]),
            pair(number, order[index - 1]),
        )
        for index, number in enumerate(order)
    }


def groups_of(circle: dict[int, tuple[str, str]], number: int) -> dict[str, ProcessGroup]:
    return {
        name: ProcessGroup(f"mesh_{name}", tuple(map(int, name.split("-"))))
        for name in circle[number]
    }


def rounds(names: tuple[str, str], count: int) -> list[CollectiveCall]:
    """A loop that calls one collective of each group in each round."""
    return [
        call(step, "all_reduce", group=name, time=10 * step + place)
        for step in range(1, count + 1)
        for place, name in enumerate(names)
    ]


def stuck(order: tuple[int, ...], swapped: tuple[int, ...]) -> list[RankEvidence]:
    """Ranks that wait in a circle after ten rounds, in which those that are ``swapped`` called the
    groups in the other order."""
    circle = circle_of(order)
    ranks = []
    for number in sorted(order):
        names = circle[number]
        usual = names
        if number in swapped:
            usual = (names[1], names[0])
        last = call(11, "all_reduce", group=names[0], done=False, time=200)
        ranks.append(rank(number, [*rounds(usual, 10), last], groups=groups_of(circle, number)))
    return ranks


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 3, 1), (0, 3, 1, 4, 2), (0, 5, 4, 1, 3, 2)])
def test_a_circle_of_any_length_is_told_in_its_order(order: tuple[int, ...]) -> None:
    verdict = explain_hang(stuck(order, swapped=()))
    assert (verdict.cause, verdict.ranks) == (HangCause.ORDER, tuple(sorted(order)))
    assert verdict.confidence is Confidence.LOW
    assert "wait for each other in a circle" in verdict.summary
    told = [f"rank {a} for rank {b}" for a, b in zip(order[1:], [*order[2:], 0], strict=True)]
    line = ", ".join([f"rank 0 waits for rank {order[1]}", *told])
    assert line in verdict.evidence
    assert ("more" in verdict.summary) == (len(order) > 4)


def test_ranks_of_a_circle_that_left_their_loop_are_named() -> None:
    verdict = explain_hang(stuck((0, 1, 3, 2), swapped=(1, 2)))
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.ORDER,
        (1, 2),
        Confidence.MEDIUM,
    )
    assert "earlier rounds called at this point what ranks 1 and 2 did not" in verdict.evidence
    assert verdict.collective is not None
    assert verdict.collective.group == "mesh_0-1"


def test_the_shortest_circle_is_told() -> None:
    """Ranks 0 and 1 wait for each other, and so do all four."""
    ranks = stuck((0, 1, 3, 2), swapped=())
    both = {"a": ProcessGroup("a", (0, 1)), "b": ProcessGroup("b", (0, 1))}
    for number, name in ((0, "a"), (1, "b")):
        log = ranks[number].log
        assert log is not None
        extra = call(1, "all_gather", group=name, done=False, time=150)
        ranks[number] = replace(
            ranks[number],
            log=replace(log, calls=(*log.calls, extra), groups={**log.groups, **both}),
        )
    verdict = explain_hang(ranks)
    assert verdict.summary.startswith("ranks 0 and 1 wait for each other: ")


def on_devices(
    number: int, *names: str, states: tuple[str, ...] = (), backend: str = "nccl"
) -> RankEvidence:
    """A rank that has called a collective of each group, in this order, and whose device has ended
    none."""
    calls = [
        replace(
            call(4, "all_reduce", group=name, done=False, time=10 * number + place),
            backend=backend,
            state=(states or ("scheduled",) * len(names))[place],
        )
        for place, name in enumerate(names)
    ]
    members = {
        name: ProcessGroup(f"mesh_{name}", tuple(map(int, name.split("-")))) for name in names
    }
    return rank(number, calls, (), members)


def test_devices_that_carry_out_two_groups_in_different_orders() -> None:
    groups = {name: ProcessGroup(name, (0, 1)) for name in ("dp", "tp")}
    ranks = [on_devices(0, "0-1"), on_devices(1, "0-1")]
    ranks = [
        replace(
            one,
            log=replace(
                one.log,
                calls=tuple(
                    replace(one.log.calls[0], group=name, created_ns=place)
                    for place, name in enumerate(names)
                ),
                groups=groups,
            ),
        )
        for one, names in zip(ranks, (("dp", "tp"), ("tp", "dp")), strict=True)
        if one.log is not None
    ]
    verdict = explain_hang(ranks)
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (
        HangCause.ORDER,
        (0, 1),
        Confidence.LOW,
    )
    assert any(
        line.startswith("rank 0 called all_reduce #4") and "before all_reduce #4" in line
        for line in verdict.evidence
    )
    same = [ranks[0], replace(ranks[1], log=ranks[0].log)]
    assert explain_hang(same).cause is HangCause.UNKNOWN, "one order on both"


def test_hosts_that_have_called_all_of_a_circle_do_not_hide_it() -> None:
    circle = circle_of((0, 1, 3, 2))
    verdict = explain_hang([on_devices(number, *circle[number]) for number in range(4)])
    assert (verdict.cause, verdict.ranks) == (HangCause.ORDER, (0, 1, 2, 3))
    assert "rank 0 waits for rank 1, rank 1 for rank 3" in "; ".join(verdict.evidence)
    on_hosts = [on_devices(number, *circle[number], backend="gloo") for number in range(4)]
    assert explain_hang(on_hosts).cause is HangCause.UNKNOWN, "threads of gloo run side by side"


def test_what_a_device_has_begun_counts_before_what_its_host_called_first() -> None:
    circle = circle_of((0, 1, 3, 2))
    begun = [
        on_devices(number, *reversed(circle[number]), states=("scheduled", "started"))
        for number in range(4)
    ]
    verdict = explain_hang(begun)
    assert verdict.cause is HangCause.ORDER
    assert "rank 0 waits for rank 1, rank 1 for rank 3" not in verdict.evidence
    assert verdict.ranks == (0, 1, 2, 3)


def test_a_rank_that_waits_in_no_group_breaks_the_circle() -> None:
    ranks = stuck((0, 1, 3, 2), swapped=())
    log = ranks[3].log
    assert log is not None
    free = replace(ranks[3], log=replace(log, calls=log.calls[:-1]), frames=IN_OWN_CODE)
    verdict = explain_hang([*ranks[:3], free])
    assert (verdict.cause, verdict.ranks) == (HangCause.RANK_MISSING, (3,))
