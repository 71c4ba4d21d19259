from __future__ import annotations

import json

import pytest

from tests.report.sections.test_lost_time import chart, diagnosed_run
from torchscale.analysis.kinds import training
from torchscale.analysis.summary.run import summarize
from torchscale.analysis.training.flags import Flag
from torchscale.report.build import build_document
from torchscale.report.document import Details, Table, TimelineChart
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.report_export import summary_json
from torchscale.report.sections.diagnosis import diagnosis_section
from torchscale.report.sections.profile import profile_section
from torchscale.schema.profiles.finding import Confidence


def test_findings_profiles_and_verdict_name_the_rank() -> None:
    summary = summarize(diagnosed_run())
    document = build_document(summary)
    assert document.overview is not None
    assert document.overview.causes[0].title == "Straggler: rank 1"
    assert "timed without gradient sync, before and after the measured steps: 320 ms per launch" in str(
        diagnosis_section(summary).blocks
    )
    blocks = diagnosis_section(summary).blocks
    (details,) = (block for block in blocks if isinstance(block, Details) and block.unfolded)
    (found,) = (block for block in details.blocks if isinstance(block, Table))
    row = found.rows[0]
    assert (row[0].text, row[3].text) == ("Straggler: rank 1", "8")
    assert "rank 1 arrives 20.0 ms late" in row[6].text
    profile = profile_section(summary)
    assert "Sync stall time: 5.0 % of step time (2 ranks, 24 steps)" in str(profile.blocks[0])
    timeline = chart(document, TimelineChart)
    assert isinstance(timeline, TimelineChart)
    assert timeline.rows == ("rank 0", "rank 1")
    waiting = dict(timeline.kinds)["waiting for ranks"]
    assert [stretch.row for stretch in waiting] == [0]
    assert waiting[0].end - waiting[0].start == pytest.approx(0.1)
    content = json.loads(summary_json(summary))
    assert content["cells"][1]["diagnosis"]["findings"][0]["rank"] == 1
    assert content["cells"][1]["decomposition"]["straggler_wait"] == pytest.approx(0.01)


def test_a_clean_run_says_that_nothing_was_found() -> None:
    text = render_markdown(build_document(summarize(diagnosed_run(0.0, 0.001))))
    assert "**nothing found** no rule found a bottleneck" in text
    assert "No bottleneck found in 2 of 2 cells." in text


def test_a_finding_has_one_confidence_in_every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "launch_flags", lambda *_: {Flag.CONTENDED, Flag.NOISY})
    summary = summarize(diagnosed_run())
    diagnosis = summary.measured[-1].diagnosis
    assert diagnosis is not None
    assert diagnosis.findings
    assert all((item.confidence, item.doubts) == (Confidence.LOW, ("contended",)) for item in diagnosis.findings)
    for finding in json.loads(summary_json(summary))["cells"][1]["diagnosis"]["findings"]:
        assert (finding["confidence"], finding["doubts"]) == ("low", ["contended"])
    text = render_markdown(build_document(summary))
    assert "low (contended)" in text
    assert "Confidence: high" not in text  # the recording beside it was not contended
