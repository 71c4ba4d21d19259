"""Jobs whose collectives are kernels of a device, from what torch's flight recorder holds of them to
the rank that is named. More of them in ``benchmarks/watch_device.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.features.watch.analysis.jobs import Extra
from tests.features.watch.job.device_jobs import DeviceJob, named, watched
from torchscale.features.watch.job.job import WatchedJob
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.watch.report import WatchReport
from torchscale.util.units import format_seconds


def slow(odd: int, milliseconds: float) -> Extra:
    """A rank that takes longer in every step."""
    return lambda rank, _: milliseconds * (rank == odd)


def job_of(directory: Path, ranks: int, **settings: Any) -> WatchedJob:
    job = watched(DeviceJob(ranks, **settings).write(directory))
    assert job.problem == ""
    return job


def report_of(job: WatchedJob) -> WatchReport:
    return job.report(1_700_000_100.0, 0)


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        pytest.param(2, {"slow": slow(1, 4.0)}, id="buckets"),
        pytest.param(4, {"slow": slow(3, 5.0), "strategy": "fsdp"}, id="fsdp"),
        pytest.param(4, {"slow": slow(3, 6.0), "strategy": "tensor"}, id="tensor"),
        pytest.param(4, {"slow": slow(3, 6.0), "strategy": "hybrid"}, id="hybrid"),
        pytest.param(
            8,
            {"slow": slow(7, 6.0), "strategy": "fsdp", "layers": 24, "transfer": 0.3},
            id="fsdp of many layers",
        ),
        pytest.param(2, {"late": slow(1, 60.0)}, id="host"),
        pytest.param(4, {"slow": slow(3, 4.0), "hosts": 2}, id="hosts"),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(
    tmp_path: Path, ranks: int, settings: dict[str, Any]
) -> None:
    assert list(named(job_of(tmp_path, ranks, **settings))) == [("straggler", ranks - 1)]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="equal"),
        pytest.param({"late": slow(1, 15.0)}, id="late within what the host is ahead"),
        pytest.param({"transfer": 12.0}, id="slow links"),
    ],
)
def test_without_a_cause_nobody_is_named(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert not list(named(job_of(tmp_path, 2, **settings)))


def test_late_data_is_told_from_a_slow_rank(tmp_path: Path) -> None:
    """Its partner in the pair arrives late with it at the others, and is not named."""
    job = job_of(tmp_path, 8, data=slow(1, 60.0), strategy="tensor")
    assert list(named(job)) == [("input_pipeline", 1)]


def test_a_host_all_of_whose_ranks_are_slow_is_named(tmp_path: Path) -> None:
    job = job_of(tmp_path, 8, hosts=2, slow=lambda rank, _: 5.0 * (rank >= 4))
    (item,) = job.verdict.findings
    assert item.finding.hosts == ("n1",)
    assert item.finding.summary == (
        "all 4 ranks of n1 (ranks 4 to 7) are late at the collective: the others wait "
        f"{format_seconds(item.finding.cost_seconds)} a step for them"
    )
    assert item.finding.cost_seconds == pytest.approx(5e-3, rel=0.1)


def test_what_is_estimated_is_said(tmp_path: Path) -> None:
    """Later collectives hide how late a rank is at the end."""
    job = job_of(tmp_path, 8, layers=24, transfer=0.3, slow=slow(7, 9.0))
    (item,) = job.verdict.findings
    assert item.finding.cost_seconds == pytest.approx(9e-3, rel=0.1)
    assert item.finding.summary.startswith("the others wait about ")
    (waits,) = item.finding.evidence
    assert "of it are seen, the rest is estimated: later collectives hide it" in waits


def test_rare_evaluations_of_one_rank_make_it_no_straggler(tmp_path: Path) -> None:
    job = job_of(tmp_path, 8, late=lambda rank, step: 2_000.0 * (rank == 0 and step % 50 == 49))
    assert "straggler" not in [kind for kind, _ in named(job)]


def pauses_of(job: WatchedJob) -> list[Finding]:
    findings = [item.finding for item in job.verdict.findings]
    return [one for one in findings if one.kind is FindingKind.PAUSES]


@pytest.mark.parametrize("sync_every", [8, 10, 25])
def test_a_host_that_waits_for_its_device_does_not_pause(tmp_path: Path, sync_every: int) -> None:
    """It reads a loss now and then, and is ahead again after it; the devices become slower."""
    job = job_of(
        tmp_path,
        2,
        steps=300,
        ahead=4,
        sync_every=sync_every,
        slow=lambda _, step: step / 10,
    )
    assert pauses_of(job) == []


def test_a_host_that_pauses_does(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, steps=300, late=lambda _, step: 900.0 * (step % 40 == 39))
    (found,) = pauses_of(job)
    assert found.cost_percent == pytest.approx(22, abs=5)
    assert found.confidence is Confidence.LOW


def test_what_is_said_is_what_was_measured(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, slow=slow(1, 4.0))
    report = report_of(job)
    (item,) = report.findings
    assert item.finding.cost_seconds == pytest.approx(4e-3, rel=0.1)
    assert item.finding.summary.startswith("the others wait 4.0")
    assert item.collective == "all_reduce of 4.00 MiB"
    first, second = report.per_rank
    assert report.waits_by == "lengths"
    assert first.wait_seconds == pytest.approx(4e-3, rel=0.1)
    assert (first.blame, second.blame) == (0.0, 1.0)
    assert first.transfer_seconds is None
    assert first.own_seconds + 4e-3 == pytest.approx(second.own_seconds, rel=0.01)


def test_a_rank_that_becomes_slow_is_named_with_the_step(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, slow=lambda rank, step: 5.0 * (rank == 1 and step >= 120))
    (item,) = job.verdict.findings
    assert item.finding.rank == 1
    assert item.first == pytest.approx(120, abs=6)


def test_a_pipeline_names_nobody_and_says_so(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, slow=slow(1, 8.0), sends=True)
    assert not list(named(job))
    assert any("sends and receives" in note for note in report_of(job).notes)


def test_collectives_of_graphs_are_not_recorded_and_that_is_said(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, slow=slow(1, 8.0), captured=True)
    assert not list(named(job))
    assert any("CUDA graph" in note for note in report_of(job).notes)


def test_recorders_without_a_collective_are_told_and_no_option_that_would_not_help(
    tmp_path: Path,
) -> None:
    made = DeviceJob(2, slow=slow(1, 8.0))
    made.is_timed = False
    folder = made.write(tmp_path)
    for path in folder.glob("ranks/*/use.json"):
        use = json.loads(path.read_text())
        path.write_text(json.dumps({**use, "recorders": {"gloo": 0, "nccl": 0}}))
    notes = " ".join(report_of(watched(folder)).notes)
    assert "(gloo, nccl: none)" in notes
    assert "--timing" not in notes


def test_without_lengths_nobody_is_named_and_the_option_is(tmp_path: Path) -> None:
    made = DeviceJob(2, slow=slow(1, 8.0))
    made.is_timed = False
    job = watched(made.write(tmp_path))
    report = report_of(job)
    assert not list(named(job))
    assert report.waits_by == "nothing"
    assert report.per_rank[0].wait_seconds is None
    assert any("watch --timing" in note for note in report.notes)


def test_a_loss_that_is_read_now_and_then_is_no_pause(tmp_path: Path) -> None:
    """The host waits for its device there, and issues its next steps at once."""
    assert not job_of(tmp_path, 2, sync_every=40).verdict.findings


def test_a_host_that_stops_for_a_second_is_a_pause(tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, late=lambda rank, step: 1_000.0 * (rank == 1 and step % 40 == 20))
    kinds = {item.finding.kind.value: item.finding for item in job.verdict.findings}
    assert kinds["pauses"].confidence.value == "low"
