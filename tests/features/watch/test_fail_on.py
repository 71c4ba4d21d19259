"""What makes ``watch`` fail where its program has not; programs are started in
``tests/integration/test_watch.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from torchscale.errors import UsageError
from torchscale.features.watch.fail_on import parse_fail_on
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Abstention, Confidence, Finding, FindingKind
from torchscale.schema.watch.report import WatchFinding, WatchReport

SLOW = Finding(
    kind=FindingKind.STRAGGLER,
    rank=1,
    cost_percent=59.0,
    cost_seconds=0.01,
    confidence=Confidence.HIGH,
    summary="rank 1 is slow",
    advice="look",
)


def job(*findings: Finding, cause: HangCause | None = None, steps: int = 400) -> WatchReport:
    """A job with these findings, and a hang where it has a cause."""
    autopsy = None
    if cause is not None:
        autopsy = Autopsy(cause=cause, confidence=Confidence.HIGH, summary="rank 1 sleeps")
    return WatchReport(
        tool_version="1",
        command=("python", "train.py"),
        started_at="2026-01-01",
        seconds=60,
        steps=steps,
        step_seconds=0.02 if steps >= 20 else None,
        findings=tuple(WatchFinding(finding=one) for one in findings),
        abstentions=(Abstention(kind=FindingKind.SLOW_LINK, reason="not measured: the link"),),
        autopsy=autopsy,
    )


def found(words: str, report: WatchReport) -> list[str]:
    return parse_fail_on(words.split(",")).found(report)


@pytest.mark.parametrize("words", ["straggler", "input-pipeline,Straggler", "any"])
def test_a_finding_of_a_named_kind_fails(words: str) -> None:
    assert found(words, job(SLOW)) == ["straggler: rank 1 (59.0 % of a step)"]


def test_other_kinds_and_what_is_not_sure_do_not() -> None:
    assert not found("input_pipeline,hang", job(SLOW))
    for confidence, fails in ((Confidence.MEDIUM, True), (Confidence.LOW, False)):
        doubted = SLOW.model_copy(update={"confidence": confidence})
        assert bool(found("any", job(doubted))) is fails


def test_a_start_has_no_share_of_a_step() -> None:
    start = SLOW.model_copy(update={"kind": FindingKind.SLOW_START})
    assert found("slow_start", job(start)) == ["slow start: rank 1"]


def test_a_hang_fails_where_its_cause_has_a_name() -> None:
    """A slow evaluation makes no progress for a while, too."""
    for words in ("hang", "any"):
        assert found(words, job(cause=HangCause.RANK_MISSING)) == ["hang: rank 1 sleeps"]
        assert not found(words, job(cause=HangCause.UNKNOWN))
    hung = job(cause=HangCause.RANK_MISSING)
    assert not found("straggler", hung)
    assert hung.autopsy is not None
    doubted = hung.autopsy.model_copy(update={"confidence": Confidence.LOW})
    assert not found("hang", hung.model_copy(update={"autopsy": doubted}))


def test_without_the_option_nothing_fails() -> None:
    nothing = parse_fail_on(None)
    assert not nothing.found(job(SLOW, cause=HangCause.LOADER))
    assert not nothing.unjudged(job(steps=3))


def test_what_was_not_judged_does_not_pass_in_silence() -> None:
    asked = parse_fail_on(["slow_link"])
    assert asked.unjudged(job(SLOW)) == ["slow link (not measured: the link)"]
    assert asked.unjudged(job(steps=3)) == ["findings (too few steps)"]
    assert not parse_fail_on(["straggler"]).unjudged(job())
    assert not parse_fail_on(["any"]).unjudged(job())
    assert parse_fail_on(["any"]).unjudged(job(steps=3))
    assert not parse_fail_on(["hang"]).unjudged(job(steps=3))


def test_a_word_that_is_no_kind_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError) as caught:
        parse_fail_on(["straggler", "stragler"])
    assert "stragler: no such kind; did you mean 'straggler'?" in caught.value.message
    assert caught.value.hint is not None
    assert "any, hang, straggler, straggling_node" in caught.value.hint
    with pytest.raises(UsageError, match="names nothing"):
        parse_fail_on([])


def test_a_wrong_kind_starts_no_program(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "watch", "--fail-on", "slow", "--", "touch", "started")

    assert done.returncode == 2
    assert "no such kind" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_job_in_a_folder_fails_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "watch.json").write_text(job(SLOW).model_dump_json())

    failed = torchscale(tmp_path, "watch", "job", "--fail-on", "straggler")
    assert failed.returncode == 1
    assert "Failed by --fail-on: straggler: rank 1 (59.0 % of a step)" in failed.stderr
    as_json = torchscale(tmp_path, "watch", "job", "--fail-on", "straggler", "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["steps"] == 400
    passed = torchscale(tmp_path, "watch", "job", "--fail-on", "slow_link")
    assert passed.returncode == 0
    assert "--fail-on: not judged: slow link" in passed.stderr
