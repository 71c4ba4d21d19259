from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.factories import cells, launch_record, rank_record, training_result
from torchscale.analysis.training.signals import launch_signals
from torchscale.analysis.training.step_parts import step_parts
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import LinkSample, RankSignals, SignalDigest
from torchscale.schema.launch.steps import RankSteps
from torchscale.schema.run.step_parts import OutsidePart, StepPart, StepParts

STEP = 0.1
"""Ten batches of a second, of ten steps each."""


def columns(ranks: int, **phases: Sequence[float | None]) -> RankSteps:
    """Mean seconds of a step in each phase, by rank; other phases took none."""
    measured = dict.fromkeys(("data_wait", "forward", "backward", "optimizer"), (0.0,) * ranks)
    unknown = dict.fromkeys(("sync", "bubble"), (None,) * ranks)
    times = dict.fromkeys(("mean", "minimum", "p50", "p95", "p99", "maximum"), (STEP,) * ranks)
    means = {f"mean_{name}": values for name, values in {**measured, **unknown, **phases}.items()}
    return RankSteps.model_validate({"count": (100,) * ranks, **times, **means})


def launch(
    forward: Sequence[float],
    *,
    wait: Sequence[float] | None = None,
    blame: Sequence[float] = (),
    transfer: float = 0.0,
    **changes: Any,
) -> LaunchRecord:
    """A launch of two or more ranks with this mean forward pass and waiting."""
    ranks = len(forward)
    cell = cells(gpu_counts=[1, ranks] if ranks > 1 else [1])[-1]
    digest = SignalDigest(
        compute=tuple((seconds,) * 10 for seconds in forward), data_wait=((0.0,) * 10,) * ranks
    )
    if wait is not None:
        waits = tuple((seconds,) * 10 for seconds in wait)
        digest = digest.model_copy(
            update={"wait": waits, "blame": tuple(blame), "transfer": (transfer,) * 10}
        )
    steps = changes.pop("rank_steps", columns(ranks, forward=tuple(forward)))
    return launch_record(cell, signals=digest, rank_steps=steps, **changes)


def split(record: LaunchRecord) -> StepParts:
    parts = step_parts(record, launch_signals(training_result(record)))
    assert parts is not None
    assert math.fsum(parts.whole.values()) == pytest.approx(parts.step, abs=1e-15)
    return parts


def test_parts_of_a_single_rank_are_its_phases_and_the_rest() -> None:
    parts = split(launch([0.06]))
    assert parts.step == pytest.approx(STEP)
    assert parts.whole[StepPart.FORWARD] == 0.06
    assert parts.whole[StepPart.REST] == pytest.approx(0.04)
    assert StepPart.SLOWER_RANKS not in parts.whole


def test_a_slower_rank_is_told_from_a_slower_phase() -> None:
    """Rank 1 takes 20 ms longer, and rank 0 waits for it; 10 ms of transfer."""
    parts = split(launch([0.05, 0.07], wait=[0.02, 0.0], blame=[0.0, 1.0], transfer=0.01))
    assert parts.whole[StepPart.FORWARD] == 0.05
    assert parts.whole[StepPart.COMMUNICATION] == pytest.approx(0.01)
    assert parts.by_rank == pytest.approx((0.0, 0.02))
    assert parts.whole[StepPart.SLOWER_RANKS] == pytest.approx(0.02)
    assert parts.later_in[StepPart.FORWARD] == pytest.approx(0.01)
    assert parts.waiting == pytest.approx(0.01)
    assert parts.whole[StepPart.REST] == pytest.approx(0.02)


def test_one_of_many_ranks_changes_no_phase() -> None:
    even = split(launch([0.05] * 4, wait=[0.0] * 4, blame=[0.0] * 4))
    slow = split(launch([0.05] * 3 + [0.09], wait=[0.04] * 3 + [0.0], blame=[0, 0, 0, 1.0]))
    assert even.whole[StepPart.FORWARD] == slow.whole[StepPart.FORWARD] == 0.05
    assert slow.by_rank == pytest.approx((0, 0, 0, 0.04))


def test_where_waiting_is_not_known_phases_are_means_over_ranks() -> None:
    steps = columns(2, forward=(0.05, 0.07), sync=(0.03, 0.01))
    parts = split(launch([0.05, 0.07], rank_steps=steps))
    assert parts.whole[StepPart.FORWARD] == pytest.approx(0.06)
    assert parts.whole[StepPart.EXCHANGE] == pytest.approx(0.02)
    assert StepPart.SLOWER_RANKS not in parts.whole


def test_the_finer_accounting_gives_the_coarser_one() -> None:
    steps = columns(2, forward=(0.05, 0.07), sync=(0.03, 0.01))
    fine = split(
        launch([0.05, 0.07], wait=[0.02, 0.0], blame=[0.0, 1.0], transfer=0.01, rank_steps=steps)
    )
    coarse = split(launch([0.05, 0.07], rank_steps=steps))
    assert fine.coarse.whole == pytest.approx(coarse.whole)
    assert coarse.coarse is coarse


def test_a_script_has_compute_and_a_pipeline_its_bubble() -> None:
    own = columns(1, forward=(None,), backward=(None,), optimizer=(None,), compute=(0.08,))
    assert split(launch([0.08], rank_steps=own)).whole[StepPart.COMPUTE] == 0.08
    staged = columns(2, forward=(0.05, 0.05), bubble=(0.01, 0.03))
    assert split(launch([0.05] * 2, rank_steps=staged)).whole[StepPart.BUBBLE] == pytest.approx(
        0.02
    )


def test_ranks_that_left_no_steps_have_no_parts() -> None:
    record = launch([0.05, 0.05], rank_steps=RankSteps())
    assert step_parts(record, launch_signals(training_result(record))) is None
    assert step_parts(launch([0.05]), None) is None
    of_one = launch([0.05, 0.05], rank_steps=columns(1, forward=(0.05,)))
    assert step_parts(of_one, launch_signals(training_result(of_one))) is None


def test_what_a_launch_takes_outside_its_steps_adds_up_too() -> None:
    parts = split(launch([0.05]))
    assert parts.outside_seconds == pytest.approx(7.0), "of 17 s, 10 s are steps"
    assert parts.whole_outside == pytest.approx(
        {
            OutsidePart.IMPORTS: 1.0,
            OutsidePart.PROCESS_GROUP: 0.1,
            OutsidePart.BUILD: 1.0,
            OutsidePart.FIRST_STEP: 0.2,
            OutsidePart.WARM_UP: 1.8,
            OutsidePart.REST: 2.9,
        }
    )


def test_what_launches_noticed_of_the_exchange_is_kept() -> None:
    link = LinkSample(payload_bytes=300, as_bucketed_seconds=0.02, merged_seconds=0.01, repeats=5)
    signals = RankSignals(
        bucket_bytes=(100, 200),
        link=link,
        collections=0,
        collection_seconds=0.0,
        longest_collection_seconds=0.0,
        page_faults=0,
    )
    cell = cells(gpu_counts=[1, 2])[-1]
    ranks = [rank_record(cell, rank, signals=signals) for rank in range(2)]
    parts = split(launch([0.05] * 2, wait=[0.0] * 2, blame=[0.0] * 2, ranks=ranks))
    assert (parts.gradient_bytes, parts.buckets, parts.link_seconds) == (300, 2, 0.01)


def test_a_launch_whose_wall_time_is_not_known_has_nothing_outside_its_steps() -> None:
    parts = split(launch([0.05], seconds=1.0))
    assert parts.outside_seconds is None
    assert parts.whole_outside == {}
