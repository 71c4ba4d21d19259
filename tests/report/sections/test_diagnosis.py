from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.factories import cells
from tests.report.sections.test_lost_time import chart, diagnosed_run
from torchscale.analysis.kinds import training
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.analysis.training.flags import Flag
from torchscale.report.build import build_document
from torchscale.report.charts import TimelineChart
from torchscale.report.document import Details, Paragraph
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.report_export import summary_json
from torchscale.report.sections.diagnosis import diagnosis_section
from torchscale.report.sections.profiles import profile_section
from torchscale.report.table import Table
from torchscale.schema.exports.training import Decomposition
from torchscale.schema.profiles.finding import Confidence, Diagnosis, Finding, FindingKind


def test_findings_profiles_and_verdict_name_the_rank() -> None:
    summary = summarize(diagnosed_run())
    document = build_document(summary)
    assert document.overview is not None
    assert document.overview.causes[0].title == "Straggler: rank 1"
    assert (
        "timed without gradient sync, before and after the measured steps: 320 ms per launch"
        in str(diagnosis_section(summary).blocks)
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
    assert (
        "No bottleneck found in 1 of 1 cell. 1 one-rank cell is the reference: nothing was found "
        "there." in text
    )


def _clean_sentences(summary: RunSummary) -> list[str]:
    blocks = diagnosis_section(summary).blocks
    texts = [block.text for block in blocks if isinstance(block, Paragraph)]
    return [text for text in texts if "No bottleneck" in text or "reference" in text]


def _diagnosed_cells(counts: list[int], listed: set[int]) -> RunSummary:
    """One series; at the counts of ``listed`` compute is slower, or one rank has a finding."""
    first = summarize(diagnosed_run(0.0, 0.0)).measured[0]
    lost = Decomposition(
        baseline_world_size=1,
        step=0.1,
        ideal=0.08,
        compute=0.02,
        data_wait=0.0,
        straggler_wait=0.0,
        exposed_communication=0.0,
        unexplained=0.0,
    )
    pauses = Finding(
        kind=FindingKind.PAUSES,
        cost_percent=5.0,
        cost_seconds=0.005,
        confidence=Confidence.HIGH,
        summary="rare long steps",
        advice="look",
    )
    found = []
    for plan in cells(gpu_counts=counts):
        count = plan.world_size
        findings = (pauses,) if count == 1 and count in listed else ()
        found.append(
            replace(
                first,
                cell=plan,
                diagnosis=Diagnosis(findings=findings),
                decomposition=lost if count > 1 and count in listed else None,
            )
        )
    return replace(summarize(diagnosed_run()), in_plan_order=tuple(found))


@pytest.mark.parametrize(
    ("counts", "listed", "said"),
    [
        ([1, 2, 4], {2, 4}, "1 one-rank cell is the reference: nothing was found there."),
        (
            [1, 2, 4],
            {4},
            "No bottleneck found in 1 of 2 cells. 1 one-rank cell is the reference: nothing was "
            "found there.",
        ),
        ([1, 2, 4], {1, 4}, "No bottleneck found in 1 of 3 cells."),
        ([2, 4], {4}, "No bottleneck found in 1 of 2 cells."),
        ([1], set(), "No bottleneck found in 1 of 1 cell."),
    ],
)
def test_a_cell_listed_under_a_cause_is_not_one_without_a_bottleneck(
    counts: list[int], listed: set[int], said: str
) -> None:
    assert _clean_sentences(_diagnosed_cells(counts, listed)) == [said]


def test_nothing_is_said_of_cells_without_a_bottleneck_where_each_has_one() -> None:
    assert _clean_sentences(_diagnosed_cells([1, 2, 4], {1, 2, 4})) == []


def test_a_finding_has_one_confidence_in_every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "launch_flags", lambda *_: {Flag.CONTENDED, Flag.NOISY})
    summary = summarize(diagnosed_run())
    diagnosis = summary.measured[-1].diagnosis
    assert diagnosis is not None
    assert diagnosis.findings
    assert all(
        (item.confidence, item.doubts) == (Confidence.LOW, ("contended",))
        for item in diagnosis.findings
    )
    for finding in json.loads(summary_json(summary))["cells"][1]["diagnosis"]["findings"]:
        assert (finding["confidence"], finding["doubts"]) == ("low", ["contended"])
    text = render_markdown(build_document(summary))
    assert "low (contended)" in text
    assert "Confidence: high" not in text  # the recording beside it was not contended
