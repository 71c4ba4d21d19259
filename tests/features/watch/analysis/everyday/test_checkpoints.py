"""Checkpoints: whose, how often, how large; and none that cost nothing."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.everyday.made import MS, START_NS, Job, line
from torchscale.features.watch.analysis.everyday.checkpoints import find_checkpoints
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.schema.watch.attempt import CheckpointCall

EVERY_50 = slice(40, None, 50)
SAVE = line("train.py:33 save", "save")


def save(step: int, call: str = "torch.save", seconds: float = 0.2) -> CheckpointCall:
    began = START_NS + step * 25_000_000
    return CheckpointCall(
        call=call,
        path=f"/job/step-{step}.pt",
        size=50 << 20,
        steps=step,
        began_ns=began,
        ended_ns=began + round(seconds * 1e9),
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_saves_alone_is_named_with_period_files_and_line(ranks: int) -> None:
    job = Job(ranks).add("saving", 0, EVERY_50, 0.2).at("saving", SAVE)
    watched = job.watched(saves={0: [save(step) for step in range(40, 600, 50)]})
    (cause,) = find_checkpoints(watched)
    found = cause.finding

    assert (found.kind, found.rank, found.period_steps) == (FindingKind.CHECKPOINTS, 0, 50)
    assert found.confidence is Confidence.HIGH
    assert found.cost_seconds == pytest.approx(12 * 0.2 / 590, rel=0.1)
    assert "torch.save" in found.summary
    assert "on rank 0 alone, and the others wait: every 50 steps, 1" in found.summary
    assert any(text.startswith("12 times, every 50 steps") for text in found.evidence)
    assert "from train.py:33 (save)" in found.evidence
    assert "12 files of 600 MiB in all, 50.0 MiB each, 262 MB/s" in found.evidence
    assert cause.lines[0][0] == SAVE
    assert cause.lines[0][1] == pytest.approx(found.cost_seconds, rel=0.3)


def test_what_all_ranks_save_at_once_is_nobodys() -> None:
    (cause,) = find_checkpoints(Job().add("saving", slice(None), EVERY_50, 0.2).watched())

    assert cause.finding.rank is None
    assert "on every rank" in cause.finding.summary
    assert not any("different steps" in text for text in cause.finding.evidence)


def test_ranks_that_save_in_different_steps_cost_the_sum() -> None:
    job = Job(2).add("saving", 0, EVERY_50, 0.2).add("saving", 0, 0, 0.0)
    job.parts["saving"][1, 65::50] = 0.2
    (cause,) = find_checkpoints(job.watched())

    assert cause.finding.cost_seconds == pytest.approx(23 * 0.2 / 590, rel=0.1)
    assert "ranks save in different steps, and all wait each time" in cause.finding.evidence


def test_a_long_job_whose_steps_are_averaged_keeps_the_period() -> None:
    job = Job(2, 40_000).add("saving", 0, slice(500, None, 500), 2.0)
    watched = job.watched()
    assert watched.log.per_column > 1
    (cause,) = find_checkpoints(watched)

    assert (cause.finding.rank, cause.finding.period_steps) == (0, 500)
    assert "every 500 steps, 2.0" in cause.finding.summary


def test_a_checkpoint_in_the_background_is_told_where_its_copy_still_takes_time() -> None:
    call = "torch.distributed.checkpoint.async_save"
    job = Job().add("saving", slice(None), EVERY_50, 0.2)
    watched = job.watched(saves={0: [save(step, call, seconds=5.0) for step in range(40, 600, 50)]})
    (cause,) = find_checkpoints(watched)

    assert "pinned memory" in cause.finding.advice
    assert not any("/s" in text for text in cause.finding.evidence)


def test_checkpoints_in_the_background_that_cost_nothing_are_none() -> None:
    job = Job().add("saving", 0, EVERY_50, 5 * MS)
    watched = job.watched(saves={0: [save(step, "async_save") for step in range(40, 600, 50)]})

    assert find_checkpoints(watched) == []


def test_checkpoints_at_no_regular_distance_have_no_period() -> None:
    job = Job().add("saving", 0, [33, 90, 250, 260, 470, 580], 0.4)
    (cause,) = find_checkpoints(job.watched())

    assert cause.finding.period_steps is None
    assert any(
        text.startswith("6 times, 4") or text.startswith("6 times, 3")
        for text in cause.finding.evidence
    )
