"""What a recording answers on the first screen."""

from __future__ import annotations

import pytest

from tests.features.trace.replay.test_host import GlooTraining
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.sections.document import profile_document
from torchscale.features.trace.sections.overview import (
    profile_overview,
    recorded_headline,
    recorded_statuses,
)
from torchscale.report.document import Tone
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import FindingKind


@pytest.fixture(scope="module")
def late() -> ProfileAnalysis:
    """Rank 1 runs 9 ms of Python more than rank 0, which runs 6 ms."""
    return analyze_trace(GlooTraining(host=6_000.0, own_host=(0.0, 9_000.0)).trace())


def test_the_five_questions_are_those_of_a_benchmark(late: ProfileAnalysis) -> None:
    rows = recorded_statuses([late], "recording")
    assert [row.question for row in rows] == [
        "Measured?",
        "Fits?",
        "Scales?",
        "Limited by?",
        "Certain?",
    ]
    answers = {row.question: (row.answer, row.text) for row in rows}
    assert answers["Measured?"][1].startswith("25 steps of 2 ranks, by torch.profiler")
    assert answers["Scales?"][0] == "not measured"
    assert answers["Limited by?"][0] == "straggler: rank 1"
    assert "less than 10.0 s" in answers["Certain?"][1]


def test_a_cause_has_one_value_wherever_it_is_named(late: ProfileAnalysis) -> None:
    straggler = next(item for item in late.findings if item.kind is FindingKind.STRAGGLER)
    value = f"{straggler.cost_percent:.1f} %"
    overview = profile_overview(late, "recording")
    assert overview.headline.text == f"Straggler: rank 1 costs {value} of the step."
    assert overview.headline.tone is Tone.CAUTION
    assert overview.causes[0].cost == f"{value} of the step"
    assert next(row for row in overview.statuses if row.question == "Limited by?").text.startswith(
        value
    )
    text = render_markdown(profile_document(late, "mine"))
    assert f"costs {value} of the step, predicted by replay" in text
    assert "| rank 1 as fast as the median of its peers | " in text
    row = next(line for line in text.splitlines() if line.startswith("| rank 1 as fast"))
    assert value in row


def test_host_code_is_told_by_the_columns_of_the_table(late: ProfileAnalysis) -> None:
    text = render_markdown(profile_document(late, "mine"))
    assert "its host code between operators takes 15.0 ms a step, the others' 6.0" in text
    assert "ECC" not in text
    assert " ." not in text


def test_nothing_found_is_an_answer() -> None:
    clean = analyze_trace(GlooTraining().trace())
    found = [item for item in clean.findings if item.cost_percent >= 10]
    assert not [item for item in found if item.kind is FindingKind.STRAGGLER]
    quiet = clean.model_copy(update={"findings": ()})
    assert recorded_headline([quiet]).text.startswith("No bottleneck found. Sync stall time: ")
    row = next(
        row for row in recorded_statuses([quiet], "recording") if row.question == "Limited by?"
    )
    assert row.answer == "nothing found"


def test_reasons_for_doubt_are_the_last_answer(late: ProfileAnalysis) -> None:
    window = late.window.model_copy(update={"seconds": 40.0})
    long = late.model_copy(update={"window": window})
    certain = recorded_statuses([long], "recording")[-1]
    assert (certain.answer, certain.tone) == ("yes", Tone.GOOD)
    assert "replays repeat the measured step within" in certain.text
    doubtful = long.model_copy(
        update={"window": window.model_copy(update={"reasons": ("one rank alone",)})}
    )
    assert recorded_statuses([doubtful], "recording")[-1].text == "one rank alone"


def test_the_page_has_the_chart_and_no_empty_line_for_cells(late: ProfileAnalysis) -> None:
    page = render_html(profile_document(late, "mine"))
    assert 'class="charts first-chart"' in page
    assert '<p class="where"></p>' not in page
