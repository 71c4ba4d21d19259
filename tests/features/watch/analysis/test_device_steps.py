"""The steps of a job whose collectives are kernels: who waited, and who is blamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.features.watch.analysis.called_ranks import COMPARED, edges, rank
from torchscale.analysis.exchanges.events import Calls, CollectiveDurations, RankEvents
from torchscale.analysis.exchanges.steps import WaitsBy
from torchscale.features.watch.analysis.chains import LEAST_STEPS, Chains
from torchscale.features.watch.analysis.device_steps import device_step_times
from torchscale.features.watch.analysis.lengths import waits_by_length


def test_the_waits_of_a_step_add_up_to_what_its_rank_is_late() -> None:
    random = np.random.default_rng(1)
    late = 1.5 + 0.1 * random.standard_normal((LEAST_STEPS, 4))
    numbered = [
        (step, 1 + step * 4 + place, float(late[step, place]))
        for step in range(LEAST_STEPS)
        for place in range(4)
    ]
    events = [
        rank(*((step, number, 1.0 + late) for step, number, late in numbered)),
        rank(*((step, number, 1.0) for step, number, late in numbered)),
    ]
    around = edges(LEAST_STEPS, 2)
    found = waits_by_length(events, around, [(0, (0, 1))], COMPARED, Chains())
    steps, waited = device_step_times(events, found, around, 0)
    assert steps.waits_by is WaitsBy.LENGTHS
    np.testing.assert_allclose(steps.wait[0] * 1e3, late.sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(steps.blame[1], steps.wait[0])
    assert not steps.wait[1].any() and not steps.estimated.any()
    assert {len(one.start) for one in waited} == {LEAST_STEPS * 4}


def joined(*parts: RankEvents) -> RankEvents:
    """The events of a rank in several process groups."""
    return replace(
        parts[0],
        calls=Calls(
            *(
                np.concatenate([getattr(one.calls, name) for one in parts])
                for name in ("time", "sequence", "group", "what")
            )
        ),
        lengths=CollectiveDurations(
            *(
                np.concatenate([getattr(one.lengths, name) for one in parts])
                for name in ("sequence", "group", "duration")
            )
        ),
    )


def test_lateness_is_passed_on_to_the_rank_that_was_waited_for_first() -> None:
    """Of two shards, with their replicas: rank 1 makes rank 0 late, for which rank 2 then waits."""
    shards = [rank((0, 1, took)) for took in (6.0, 1.0)] + [
        rank((0, 1, 1.0), group=1) for _ in range(2)
    ]
    replicas = [
        rank((0, 1, took), group=group) for took, group in ((1.0, 2), (1.0, 3), (5.0, 2), (6.0, 3))
    ]
    events = [joined(*parts) for parts in zip(shards, replicas, strict=True)]
    around = edges(1, 4)
    groups = [(0, (0, 1)), (1, (2, 3)), (2, (0, 2)), (3, (1, 3))]
    found = waits_by_length(events, around, groups, COMPARED, Chains())
    steps, _ = device_step_times(events, found, around, 0)
    assert (steps.wait[:, 0] * 1e3).tolist() == pytest.approx([5, 0, 4, 5])
    assert (steps.blame[:, 0] * 1e3).tolist() == pytest.approx([0, 14, 0, 0])


def test_waits_for_one_rank_in_two_groups_at_once_count_once() -> None:
    """Kernels of different groups run side by side; waits for different ranks add up."""
    both = [rank((0, 1, 5.0)), rank((0, 1, 1.0)), rank((0, 1, 4.0))]
    other = [rank((0, 1, 7.0), group=1), rank((0, 1, 1.0), group=1), rank((0, 1, 1.5), group=1)]
    third = [rank((0, 1, 4.0), group=2), rank((0, 1, 4.0), group=2), rank((0, 1, 1.0), group=2)]
    events = [joined(*parts) for parts in zip(both, other, third, strict=True)]
    around = edges(1, 3)
    groups = [(number, (0, 1, 2)) for number in range(3)]
    found = waits_by_length(events, around, groups, COMPARED, Chains())
    steps, _ = device_step_times(events, found, around, 0)
    assert steps.wait[0, 0] * 1e3 == pytest.approx(6.0 + 3.0)
    assert steps.blame[1, 0] * 1e3 == pytest.approx(6.0 + 3.0)
    assert steps.blame[2, 0] * 1e3 == pytest.approx(3.0 + 3.0)
