from __future__ import annotations

import math
import random

import pytest

from tests.explanations import NOISE, PHASES, explained, measured, side, two_devices
from tests.factories import cells
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.cell_why import Clarity
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
    assert why.clear == ()
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
