"""What a recording answers on the first screen."""

from __future__ import annotations

import pytest

from tests.features.trace.replay.test_host import GlooTraining
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.report.sections.first_screen.recorded import recorded_headline, recorded_statuses
from torchscale.report.values import Tone
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
