"""The first screen of a watched job."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.features.watch.first_screen import job_headline, job_overview
from torchscale.features.watch.job.job import WatchedJob
from torchscale.report.document import Overview
from torchscale.report.values import Tone
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.schema.watch.report import JobState, WatchReport

_STARTED = START_NS * 1e-9 - 4.0


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> WatchReport:
    """A job whose rank 1 is 6 ms late from step 600 on."""
    directory = tmp_path_factory.mktemp("job")
    write_job(directory, job(2, 1200, lambda rank, step: 6.0 * rank * (step > 600)))
    watched = WatchedJob(directory, ("torchrun", "src/train.py"), _STARTED)
    watched.advance()
    watched.judge()
    return watched.report(_STARTED + 60, 0)


def _answers(overview: Overview) -> dict[str, str]:
    return {row.question: row.answer for row in overview.statuses}


def test_a_job_says_how_fast_it_was_and_what_limits_it_since_when(slow: WatchReport) -> None:
    overview = job_overview(slow)
    (item, *_) = slow.findings
    assert overview.headline == job_headline(slow)
    assert overview.headline.text.startswith("train.py: 1,201 steps on 2 ranks in 60 s, ")
    assert overview.headline.text.endswith(f"; straggler: rank 1, since step {item.first_step}.")
    answers = _answers(overview)
    assert answers["Ended?"] == "done"
    assert answers["How fast?"].endswith("ms a step")
    assert answers["Limited by?"] == f"straggler: rank 1, since step {item.first_step}"
    cause = overview.causes[0]
    assert cause.text.startswith(f"Since step {item.first_step}: rank 1 arrives ")
    assert "Where: all_reduce of 1.00 MiB." in cause.text
    assert "Confidence: high." in cause.text
    assert overview.failures == ()


def test_doubts_are_beside_the_confidence(slow: WatchReport) -> None:
    doubted = {"confidence": Confidence.LOW, "doubts": ("contended",)}
    findings = tuple(
        item.model_copy(update={"finding": item.finding.model_copy(update=doubted)})
        for item in slow.findings
    )
    overview = job_overview(slow.model_copy(update={"findings": findings}))
    (limited,) = [row for row in overview.statuses if row.question == "Limited by?"]
    assert "confidence low (contended)" in limited.text
    assert "Confidence: low (contended)." in overview.causes[0].text


def test_a_job_that_failed_says_so_first_and_keeps_its_figure(slow: WatchReport) -> None:
    failed = slow.model_copy(update={"state": JobState.FAILED, "exit_code": 3, "findings": ()})
    overview = job_overview(failed)
    assert overview.headline.text.startswith("train.py (failed: exit code 3): 1,201 steps")
    (failure,) = overview.failures
    assert (failure.cells, failure.state, failure.reason) == ("train.py", "failed", "exit code 3")
    assert overview.statuses[0].tone is Tone.BAD
    assert _answers(overview)["Limited by?"] == "nothing found"


def test_a_job_of_few_steps_says_why_it_has_no_figure(slow: WatchReport) -> None:
    short = slow.model_copy(update={"step_seconds": None, "steps": 3, "findings": ()})
    overview = job_overview(short)
    (speed,) = [row for row in overview.statuses if row.question == "How fast?"]
    assert speed.answer == "no figure"
    assert speed.text == "it made 3 steps, and the first 10 count in none"
    assert "Limited by?" not in _answers(overview)


def test_a_job_that_hung_and_was_lost_says_both(slow: WatchReport) -> None:
    hang = Autopsy(
        cause=HangCause.UNKNOWN, summary="rank 1 waits for a lock", confidence=Confidence.LOW
    )
    lost = slow.model_copy(update={"state": JobState.LOST, "autopsy": hang, "exit_code": None})
    answers = _answers(job_overview(lost))
    assert (answers["Ended?"], answers["Hung?"]) == ("lost", "yes")
