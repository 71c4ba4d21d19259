from __future__ import annotations

import math
import random

import pytest

from tests.explanations import NOISE, PHASES, explained, measured, side, two_devices
from tests.factories import cells
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.cell_why import Clarity, DisturbedSeconds, PartChange
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.explanation import explain
from torchscale.features.compare.analysis.why import split_pair
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell
from torchscale.schema.run.step_parts import OutsidePart, StepPart


def test_the_part_that_changed_is_clear_and_parts_sum_to_the_difference() -> None:
    why = explained(measured(), measured({StepPart.FORWARD: 0.015})).why
    assert [part.name for part in why.clear] == [StepPart.FORWARD]
    assert why.clear[0].seconds == pytest.approx(0.005)
    assert math.fsum(part.seconds for part in why.parts) == pytest.approx(
        why.step.seconds, abs=1e-15
    )
    assert why.step.is_clear


def test_equal_sides_have_no_clear_part() -> None:
    why = explained(measured(), measured(noise=[-one for one in NOISE])).why
    assert why.clear == ()
    assert {part.clarity for part in why.parts} == {Clarity.SMALL}


def test_what_is_below_the_threshold_is_not_clear_however_certain() -> None:
    less = PHASES[StepPart.FORWARD] + 0.0005
    before, after = side(measured()), side(measured({StepPart.FORWARD: less}))
    (why,), _ = split_pair(compare(before, after))
    assert why.part(StepPart.FORWARD) is not None
    assert why.clear == ()
    (why,), _ = split_pair(compare(before, after, threshold=0.005))
    assert [part.name for part in why.clear] == [StepPart.FORWARD]


def test_a_cell_of_one_side_alone_is_not_split() -> None:
    single = measured(cell=cells(gpu_counts=[1])[0], ranks=(0.0005,))
    pair = compare(side(measured(), single), side(measured({StepPart.FORWARD: 0.015})))
    found, without = split_pair(pair)
    assert len(found) == 1
    assert without == {}


def test_two_launches_a_side_are_too_few() -> None:
    why = explained(measured(noise=NOISE[:2]), measured({StepPart.FORWARD: 0.02})).why
    assert not why.enough_launches
    assert why.clear == ()
    assert why.step.adjusted_p is None
    assert why.step.difference.interval is not None, "it is shown all the same"
    three = explained(
        measured(noise=NOISE[:3]), measured({StepPart.FORWARD: 0.02}, noise=NOISE[:3])
    ).why
    assert three.enough_launches
    assert [part.name for part in three.clear] == [StepPart.FORWARD]


def test_a_slower_rank_is_its_own_part_and_named() -> None:
    why = explained(measured(), measured(ranks=(0.0005, 0.0055))).why
    assert [part.name for part in why.clear] == [StepPart.SLOWER_RANKS]
    assert [rank.name for rank in why.ranks if rank.is_clear] == [1]
    slower = why.part(StepPart.SLOWER_RANKS)
    assert slower is not None
    assert math.fsum(rank.seconds for rank in why.ranks) == pytest.approx(slower.seconds)


def test_sides_of_other_counts_have_no_ranks_in_common() -> None:
    why = explained(measured(), measured(ranks=(0.0005, 0.0005, 0.006))).why
    assert why.ranks == ()
    assert [part.name for part in why.clear] == [StepPart.SLOWER_RANKS]


def test_noise_in_one_part_hides_a_change_of_it_alone() -> None:
    noisy = tuple(one * 50 for one in NOISE)
    why = explained(measured(noise=noisy), measured({StepPart.DATA_WAIT: 0.005}, noise=noisy)).why
    assert why.clear == ()
    assert all(part.clarity is Clarity.UNCLEAR for part in why.parts if part.name != "rest")


def test_a_side_of_which_waiting_is_not_known_is_compared_by_the_coarser_parts() -> None:
    fine = measured(
        ranks=(0.002, 0.004),
        later_in={StepPart.FORWARD: 0.002},
        waiting=0.004,
    )
    coarse = fine.model_copy(
        update={
            "launches": tuple(
                launch.model_copy(update={"parts": launch.parts.coarse if launch.parts else None})
                for launch in fine.launches
            )
        }
    )
    why = explained(fine, coarse).why
    assert why.part(StepPart.SLOWER_RANKS) is None
    assert why.part(StepPart.EXCHANGE) is not None
    assert all(part.seconds == pytest.approx(0, abs=1e-9) for part in why.parts)


def test_a_launch_outside_its_steps_is_apart_from_the_step() -> None:
    longer = {OutsidePart.IMPORTS: 3.0, OutsidePart.BUILD: 3.0, OutsidePart.WARM_UP: 2.0}
    why = explained(measured(), measured(outside_seconds=10.0, outside=longer)).why
    assert why.clear == ()
    assert why.outside is not None
    assert why.outside.seconds == pytest.approx(2.0, abs=1e-3)
    assert [part.name for part in why.outside_parts if part.is_clear] == [OutsidePart.BUILD]
    assert math.fsum(part.seconds for part in why.outside_parts) == pytest.approx(
        why.outside.seconds
    )


def test_a_script_has_nothing_outside_its_steps() -> None:
    why = explained(measured(outside_seconds=None), measured()).why
    assert why.outside is None
    assert why.outside_parts == ()


def test_a_disturbance_counts_as_if_all_of_it_were_in_each_part() -> None:
    """The second side was contended, and others delayed it by at most 5 %: 2 of 40 ms."""
    quiet = {"flags": (), "delay": (0.0, 0.0)}
    loaded = {"flags": ("contended",), "delay": (0.0, 0.05)}
    small = explained(
        measured(launch=quiet), measured({StepPart.COMMUNICATION: 0.0055}, launch=loaded)
    ).why
    assert small.disturbance.conditions == ("contended",)
    assert 0.002 < small.disturbance.most < 0.008, "beside others a step computes slower, too"
    assert small.disturbance.least == pytest.approx(0, abs=1e-5), "and nothing made it faster"
    assert small.clear == ()
    large = explained(
        measured(launch=quiet), measured({StepPart.COMMUNICATION: 0.014}, launch=loaded)
    ).why
    assert [part.name for part in large.clear] == [StepPart.COMMUNICATION]


def test_a_disturbance_that_nothing_bounds_leaves_all_unclear() -> None:
    why = explained(
        measured(launch={"flags": ()}),
        measured({StepPart.COMMUNICATION: 0.03}, launch={"flags": ("throttled",)}),
    ).why
    assert why.disturbance.most == math.inf
    assert why.disturbance.least == pytest.approx(0, abs=1e-5)
    assert why.clear == ()
    before_alone = explained(
        measured(launch={"flags": ("throttled",)}), measured(launch={"flags": ()})
    ).why
    assert before_alone.disturbance.least == -math.inf
    assert before_alone.disturbance.most == pytest.approx(0, abs=1e-5)
    faster = explained(
        measured({StepPart.COMMUNICATION: 0.03}, launch={"flags": ()}),
        measured(launch={"flags": ("throttled",)}),
    ).why
    assert [part.name for part in faster.clear] == [StepPart.COMMUNICATION], (
        "throttled, and yet faster"
    )


def test_a_cell_without_parts_is_named_with_the_reason() -> None:
    plain = measured()
    old = plain.model_copy(
        update={
            "launches": tuple(
                LaunchFigures(values={MetricKey(metric=Metric.THROUGHPUT): 20.0}) for _ in range(3)
            )
        }
    )
    found = explain(compare(side(old, name="old"), side(plain, name="new")))
    assert found.cells == ()
    assert list(found.without) == [two_devices().id]
    assert "old: 3 of 3 launches have no parts" in found.without[two_devices().id]


def test_the_cell_that_changed_most_comes_first() -> None:
    one, two, three = cells(batch_sizes=[8, 16, 32], gpu_counts=[1])
    before = side(*(measured(cell=cell) for cell in (one, two, three)))
    changed = (0.0102, 0.02, 0.012)
    after = side(
        *(
            measured({StepPart.FORWARD: seconds}, cell=cell)
            for cell, seconds in zip((one, two, three), changed, strict=True)
        )
    )
    found, _ = split_pair(compare(before, after))
    assert [why.cell.cell.cell.id for why in found] == [two.id, three.id, one.id]


def test_other_phases_show_what_a_disturbance_did() -> None:
    """Nothing bounds what lower clocks did, but the backward pass and the optimizer took as long as
    before."""
    quiet, hot = {"flags": ()}, {"flags": ("throttled",)}
    one = explained(measured(launch=quiet), measured({StepPart.FORWARD: 0.013}, launch=hot)).why
    assert [part.name for part in one.clear] == [StepPart.FORWARD]
    every = {part: seconds * 1.3 for part, seconds in PHASES.items()}
    all_slower = explained(measured(launch=quiet), measured(every, launch=hot)).why
    assert all_slower.clear == ()
    exchange = explained(
        measured(launch=quiet), measured({StepPart.COMMUNICATION: 0.02}, launch=hot)
    ).why
    assert exchange.clear == (), "what it did to an exchange the phases do not show"


def test_phases_that_are_a_small_part_show_nothing_of_a_disturbance() -> None:
    quiet, hot = {"flags": ()}, {"flags": ("throttled",)}
    mostly = {StepPart.FORWARD: 0.4}
    why = explained(
        measured(mostly, launch=quiet), measured({StepPart.FORWARD: 0.5}, launch=hot)
    ).why
    assert why.clear == ()


def test_of_equal_pairs_few_have_a_clear_part() -> None:
    """Launches that differ by more than the threshold, in parts that vary together and apart."""
    drawn = random.Random(1)

    def noisy_side() -> ResultCell:
        noise = [drawn.gauss(0.0, 0.0004) for _ in range(4)]
        found = measured(noise=noise)
        launches = []
        for launch in found.launches:
            assert launch.parts is not None
            taken = {
                part: seconds + drawn.gauss(0.0, 0.0006)
                for part, seconds in launch.parts.parts.items()
            }
            step = math.fsum(taken.values()) + math.fsum(launch.parts.by_rank) + 0.001
            parts = launch.parts.model_copy(update={"parts": taken, "step": step})
            launches.append(launch.model_copy(update={"parts": parts}))
        return found.model_copy(update={"launches": tuple(launches)})

    pairs = 400
    alarms = sum(bool(explained(noisy_side(), noisy_side()).why.clear) for _ in range(pairs))
    assert alarms <= 0.05 * pairs


def test_a_slow_loader_does_not_hide_a_slow_phase_of_a_disturbed_side() -> None:
    quiet, hot = {"flags": ()}, {"flags": ("throttled",)}
    both = {StepPart.DATA_WAIT: 0.02, StepPart.FORWARD: 0.015}
    why = explained(measured(launch=quiet), measured(both, launch=hot)).why
    assert [part.name for part in why.clear] == [StepPart.DATA_WAIT, StepPart.FORWARD]


def test_what_disturbed_nothing_or_without_bounds_has_such_ends() -> None:
    assert DisturbedSeconds().ends == (0.0, 0.0)
    assert DisturbedSeconds(("slowed",), -math.inf, 0.5).ends == (None, 0.5)


def exact(step: float) -> ResultCell:
    """Equal launches of such a step, of which the forward pass is all but 0.5 s."""
    cell = measured(noise=(0.0, 0.0, 0.0))
    launches = []
    for launch in cell.launches:
        assert launch.parts is not None
        taken = {StepPart.FORWARD: step - 0.5, StepPart.BACKWARD: 0.5}
        parts = launch.parts.model_copy(update={"step": step, "parts": taken, "by_rank": ()})
        values = {MetricKey(metric=Metric.THROUGHPUT): 1 / step}
        launches.append(launch.model_copy(update={"parts": parts, "values": values}))
    return cell.model_copy(update={"launches": tuple(launches)})


@pytest.mark.parametrize(
    ("step", "clarity"),
    [
        (1.25, Clarity.SMALL),
        (0.75, Clarity.SMALL),
        (1.251, Clarity.CLEAR),
        (0.749, Clarity.CLEAR),
    ],
)
def test_a_difference_of_the_threshold_itself_is_small(step: float, clarity: Clarity) -> None:
    """A quarter of the step before, without noise."""
    (why,), _ = split_pair(compare(side(exact(1.0)), side(exact(step)), threshold=0.25))
    forward = why.part(StepPart.FORWARD)
    assert forward is not None
    assert (forward.clarity, why.step.clarity) == (clarity, clarity)


@pytest.mark.parametrize("seconds", [0.0005, -0.0005])
def test_a_difference_whose_interval_reaches_beyond_the_threshold_is_unclear(
    seconds: float,
) -> None:
    """At one end alone: the other lies within."""
    noisy = tuple(3 * one for one in NOISE)
    after = measured({StepPart.FORWARD: PHASES[StepPart.FORWARD] + seconds}, noise=noisy)
    forward = explained(measured(noise=noisy), after).why.part(StepPart.FORWARD)
    assert forward is not None
    assert forward.difference.interval is not None
    low, high = sorted(map(abs, forward.difference.interval))
    assert low < 0.02 * math.fsum(PHASES.values()) < high
    assert forward.clarity is Clarity.UNCLEAR


def test_parts_that_differ_are_in_the_order_of_their_size() -> None:
    after = measured({StepPart.FORWARD: 0.013, StepPart.BACKWARD: 0.012})
    why = explained(measured(), after).why
    assert [part.name for part in why.clear] == [StepPart.BACKWARD, StepPart.FORWARD]
    assert why.part(StepPart.BUBBLE) is None


def test_what_launches_noticed_of_the_exchange_is_a_mean_of_each_side() -> None:
    """A link that took no time to be measured is one that was measured."""
    before = measured(gradient_bytes=100, buckets=2, link_seconds=0.0)
    after = measured(gradient_bytes=300, buckets=4, link_seconds=0.002)
    probe = explained(before, after).why.probe
    assert (probe.gradient_bytes, probe.buckets) == ((100, 300), (2, 4))
    assert probe.link_seconds == pytest.approx((0.0, 0.002))
    without = explained(before, measured(buckets=4)).why.probe
    assert (without.gradient_bytes, without.buckets) == (None, (2, 4))
    assert (without.link, without.link_seconds) == (None, None)


def test_a_launch_without_parts_is_enough_to_have_none() -> None:
    whole = measured()
    first, *others = whole.launches
    partial = whole.model_copy(
        update={"launches": (first.model_copy(update={"parts": None}), *others)}
    )
    found = explain(compare(side(whole, name="old"), side(partial, name="new")))
    assert found.cells == ()
    assert found.without[two_devices().id].startswith("new: 1 of 4 launches have no parts")


def test_no_part_lacks_a_side_that_spent_no_time_in_it() -> None:
    """A part of one side alone is a difference from nothing."""
    plain = measured()
    launches = []
    for launch in plain.launches:
        assert launch.parts is not None
        taken = {**launch.parts.parts, StepPart.BUBBLE: 0.25}
        step = launch.parts.step + 0.25
        parts = launch.parts.model_copy(update={"parts": taken, "step": step})
        launches.append(launch.model_copy(update={"parts": parts}))
    after = plain.model_copy(update={"launches": tuple(launches)})
    bubble = explained(plain, after).why.part(StepPart.BUBBLE)
    assert isinstance(bubble, PartChange)
    assert (bubble.difference.before, bubble.difference.after) == (0.0, 0.25)
    assert bubble.is_clear


def test_what_a_disturbance_did_to_all_phases_is_not_taken_for_a_change_of_one() -> None:
    """Up to the end of the interval of what it did to the others, whose share of the step counts:
    the forward pass became longer by a third and the others by a fifth."""
    quiet, hot = {"flags": ()}, {"flags": ("throttled",)}
    others = {part: 1.2 * seconds for part, seconds in PHASES.items()}
    one = explained(
        measured(launch=quiet), measured({**others, StepPart.FORWARD: 0.0135}, launch=hot)
    ).why
    assert one.clear == ()
    more = explained(
        measured(launch=quiet), measured({**others, StepPart.FORWARD: 0.025}, launch=hot)
    ).why
    assert [part.name for part in more.clear] == [StepPart.FORWARD]


def test_what_disturbed_the_first_side_is_not_taken_for_a_gain() -> None:
    """All phases were slower there alike; one that became shorter by more did so by itself."""
    quiet, hot = {"flags": ()}, {"flags": ("throttled",)}
    slow = {part: 1.2 * seconds for part, seconds in PHASES.items()}
    alike = explained(measured(slow, launch=hot), measured(launch=quiet)).why
    assert alike.clear == ()
    less = explained(
        measured({**slow, StepPart.FORWARD: 0.03}, launch=hot), measured(launch=quiet)
    ).why
    assert [part.name for part in less.clear] == [StepPart.FORWARD]


def test_single_launches_of_which_one_was_disturbed_show_a_difference_and_decide_nothing() -> None:
    quiet, hot = {"flags": ()}, {"flags": ("throttled",)}
    slower = measured({StepPart.FORWARD: 0.02}, noise=(0.0,), launch=hot)
    why = explained(measured(noise=(0.0,), launch=quiet), slower).why
    assert why.step.seconds == pytest.approx(0.01)
    assert {part.clarity for part in why.parts} == {Clarity.UNCLEAR}
