"""Simulated jobs with one cause each, and none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.features.watch.analysis.jobs import Extra, job, log_of, steps_of
from torchscale.analysis.exchanges.steps import WaitsBy
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.features.watch.analysis.verdict import JobFinding, judge_job
from torchscale.schema.profiles.finding import FindingKind


def _of_kind(found: tuple[JobFinding, ...], kind: FindingKind) -> list[JobFinding]:
    return [item for item in found if item.finding.kind is kind]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noted_waits", [True, False], ids=["noted waits", "within DDP"])
def test_nobody_is_named_where_ranks_are_equal(seed: int, noted_waits: bool) -> None:
    verdict = judge_job(log_of(job(4, 300, noise=0.6, noted_waits=noted_waits, seed=seed)))

    assert all(item.finding.rank is None for item in verdict.findings)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("noted_waits", [True, False], ids=["noted waits", "within DDP"])
def test_a_slow_rank_is_named_with_its_cost(ranks: int, noted_waits: bool) -> None:
    events = job(ranks, 200, lambda rank, _: 3.0 * (rank == 1), noted_waits=noted_waits)
    (found,) = _of_kind(judge_job(log_of(events)).findings, FindingKind.STRAGGLER)

    assert found.finding.rank == 1
    assert found.finding.cost_seconds * 1e3 == pytest.approx(3.0, abs=0.3)
    assert found.span == ""


def test_a_rank_that_becomes_slow_is_named_since_then() -> None:
    log = log_of(job(4, 400, lambda rank, step: 3.0 * (rank == 2 and step >= 180)))
    (found,) = _of_kind(judge_job(log).findings, FindingKind.STRAGGLER)

    assert found.finding.rank == 2
    assert found.first == pytest.approx(180, abs=10)
    assert found.last is None
    assert found.span.startswith("since step 1")


def test_a_level_too_short_to_be_judged_ends_no_slow_rank() -> None:
    def extra(rank: int, step: int) -> float:
        return 15.0 * (rank == 1 and step >= 150) + 4.0 * (step >= 370)

    log = log_of(job(2, 400, extra))
    (found,) = _of_kind(judge_job(log).findings, FindingKind.STRAGGLER)

    assert found.first == pytest.approx(150, abs=10)
    assert found.last is None


def test_a_rank_that_becomes_much_slower_is_told_since_then() -> None:
    def extra(rank: int, step: int) -> float:
        return (20.0 if step >= 150 else 2.0) * (rank == 1)

    (found,) = _of_kind(judge_job(log_of(job(2, 400, extra))).findings, FindingKind.STRAGGLER)

    assert found.first == pytest.approx(150, abs=10)


def test_steps_count_from_the_job_where_its_first_ones_are_left_out() -> None:
    log = log_of(job(4, 400, lambda rank, step: 3.0 * (rank == 2 and step >= 180), noise=0.05))
    settled = log.between(100, 400)
    assert settled is not None
    (found,) = _of_kind(judge_job(log.without(settled)).findings, FindingKind.STRAGGLER)

    assert found.first == pytest.approx(180, abs=5)


def test_a_rank_that_recovers_is_named_until_then_if_it_lasted() -> None:
    log = log_of(job(2, 2400, lambda rank, step: 3.0 * (rank == 0 and 400 <= step < 1500)))
    (found,) = _of_kind(judge_job(log).findings, FindingKind.STRAGGLER)

    assert found.finding.rank == 0
    assert found.first == pytest.approx(400, abs=20)
    assert found.last == pytest.approx(1500, abs=20)


def test_a_disturbance_of_a_second_is_not_told() -> None:
    log = log_of(job(2, 2400, lambda rank, step: 6.0 * (rank == 0 and 400 <= step < 470)))

    assert not _of_kind(judge_job(log).findings, FindingKind.STRAGGLER)


def test_a_rank_that_grows_slower_is_told_from_one_that_became_slow() -> None:
    log = log_of(job(2, 400, lambda rank, step: 8.0 * rank * step / 400))
    (found,) = _of_kind(judge_job(log).findings, FindingKind.STRAGGLER)

    assert found.finding.rank == 1
    assert "longer and longer" in found.finding.summary


def test_a_slow_loader_is_named_by_its_rank() -> None:
    log = log_of(job(2, 200, data=lambda rank, _: 4.0 * rank))
    (found,) = _of_kind(judge_job(log).findings, FindingKind.INPUT_PIPELINE)

    assert found.finding.rank == 1


def test_checkpoints_are_named_as_such_with_their_period() -> None:
    log = log_of(job(2, 400, saving=lambda rank, step: 80.0 * (rank == 0 and step % 50 == 49)))
    (found,) = _of_kind(judge_job(log).findings, FindingKind.CHECKPOINTS)

    assert found.finding.rank == 0
    assert found.finding.period_steps == 50


def test_all_ranks_equally_slow_is_nobodys_fault() -> None:
    slow: Extra = lambda *_: 6.0  # noqa: E731 - as other causes are written
    verdict = judge_job(log_of(job(2, 200, slow)))

    assert all(item.finding.rank is None for item in verdict.findings)


def test_where_collectives_are_kernels_no_rank_is_named_by_the_times_of_its_host() -> None:
    steps = steps_of(job(2, 200, lambda rank, _: 3.0 * rank))
    log = StepLog((0, 1))
    log.add(replace(steps, waits_by=WaitsBy.NOTHING))

    verdict = judge_job(log, on_device=True)
    assert not _of_kind(verdict.findings, FindingKind.STRAGGLER)
    (reason,) = (item.reason for item in verdict.abstentions if item.kind is FindingKind.STRAGGLER)
    assert reason.startswith("not measured: each rank's compute time")


def test_over_gloo_on_a_device_a_rank_whose_host_is_late_is_named_and_no_transfer_is_judged() -> (
    None
):
    verdict = judge_job(log_of(job(2, 200, lambda rank, _: 3.0 * rank)), on_device=True)
    (found,) = _of_kind(verdict.findings, FindingKind.STRAGGLER)

    assert found.finding.rank == 1
    kinds = {item.kind for item in verdict.abstentions}
    assert FindingKind.EXPOSED_COMMUNICATION in kinds


def test_an_empty_log_has_no_verdict() -> None:
    assert not judge_job(log_of(job(2, 0))).findings
