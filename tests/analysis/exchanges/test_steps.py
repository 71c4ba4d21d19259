"""Moments and collectives → what each rank did in each step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import job, steps_of


@pytest.mark.parametrize("noted_waits", [True, False], ids=["noted waits", "within DDP"])
def test_what_a_late_rank_takes_is_its_own_and_the_others_wait_for_it(noted_waits: bool) -> None:
    steps = steps_of(
        job(3, 50, lambda rank, _: 4.0 * (rank == 1), noted_waits=noted_waits, noise=0.0)
    )

    own, wait = steps.own.mean(axis=1) * 1e3, steps.wait.mean(axis=1) * 1e3
    assert own == pytest.approx([11, 15, 11], abs=0.01)
    assert wait == pytest.approx([4, 0, 4], abs=0.01)
    assert steps.transfer.mean(axis=1) * 1e3 == pytest.approx([2, 2, 2], abs=0.01)
    assert steps.blame.sum(axis=1) * 1e3 / 50 == pytest.approx([0, 8, 0], abs=0.01)


def test_the_parts_of_a_step_add_up_to_it() -> None:
    steps = steps_of(job(2, 50, lambda rank, step: rank * step % 3, data=lambda *_: 0.7))

    parts = steps.own + steps.data + steps.wait + steps.transfer + steps.bubble + steps.collector
    assert np.allclose(parts, steps.wall, atol=1e-9)


def test_waits_for_data_are_no_time_of_the_rank() -> None:
    steps = steps_of(job(2, 30, data=lambda rank, _: 5.0 * rank, noise=0.0))

    assert steps.data.mean(axis=1) * 1e3 == pytest.approx([0.1, 5.1])
    assert steps.own.mean(axis=1) * 1e3 == pytest.approx([11, 11])


def test_quiet_is_what_lies_outside_of_collectives() -> None:
    within_ddp = steps_of(job(2, 30, noted_waits=False, noise=0.0))

    assert np.allclose(within_ddp.quiet, within_ddp.own)  # one call, at the end of the pass


def test_checkpoints_are_marked_and_stay_in_the_ranks_own_time() -> None:
    steps = steps_of(job(2, 20, saving=lambda rank, step: 50.0 * (rank == 0 and step == 9)))

    assert steps.saving[0].sum() == pytest.approx(0.05)
    assert steps.saving[1].sum() == 0
    assert steps.own[0].max() > 0.05


def test_a_wait_for_what_was_not_recorded_is_a_bubble() -> None:
    events = job(2, 20, noise=0.0)
    without = [type(one)(one.moments, one.calls.only(one.calls.time < 0), one.core_time) for one in events]  # fmt: skip
    steps = steps_of(without)

    assert not steps.wait.any()
    assert not steps.transfer.any()
    assert steps.bubble.mean() * 1e3 == pytest.approx(2.0, abs=0.01)


def test_passes_are_counted() -> None:
    steps = steps_of(job(2, 20))

    assert (steps.passes == 1).all()
