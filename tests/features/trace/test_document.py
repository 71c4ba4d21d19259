"""The report of a recording."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tests.features.trace.analysis.test_analyze import training
from tests.features.trace.replay.simulator import Training
from tests.features.trace.replay.test_host import GlooTraining
from torchscale.config.choices import ProfileTarget
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.document import profile_document, profile_overview
from torchscale.features.trace.terminal import print_analysis, print_predictions
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.values import Tone
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import FindingKind


@pytest.fixture(scope="module")
def late() -> ProfileAnalysis:
    """Rank 1 runs 9 ms of Python more than rank 0, which runs 6 ms."""
    return analyze_trace(GlooTraining(host=6_000.0, own_host=(0.0, 9_000.0)).trace())


def test_one_recording_is_a_report_of_its_own() -> None:
    document = profile_document(analyze_trace(training([0.0, 100.0])), "mine")
    text = render_markdown(document)
    assert "# Training profile: mine" in text
    assert "Sync stall time: 5.0 %" in text
    assert "- Limited by? **" in text
    assert "| all\\_reduce |" in text
    assert "torchscale docs profile" in text
    assert render_html(document).count("<h2") == 3
    assert render_pdf(document).startswith(b"%PDF")


def test_what_was_not_judged_is_a_line_and_its_reasons_are_folded() -> None:
    analysis = analyze_trace(training([0.0, 100.0]))
    assert analysis.abstentions
    document = profile_document(analysis, "mine")
    page = render_html(document)
    (line,) = re.findall(r"Not judged: [^<]*", page)
    assert "(not measured)" in line
    folded = page[page.index("What was not judged, and why") :]
    for item in analysis.abstentions:
        assert item.kind.label in folded
    console = Console(file=io.StringIO(), width=2_000)
    print_analysis(analysis, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("Not judged: ") == 1
    assert "Rules without a judgement" not in shown


def test_predictions_are_a_table_with_the_error_of_their_replay() -> None:
    training = Training(data=4, speed=lambda rank, _: 1.5 if rank == 2 else 1.0)
    analysis = analyze_trace(training.trace())
    text = render_markdown(profile_document(analysis, "mine"))
    assert "Predicted by replay (measured step 1.57 ms, replayed as recorded within 0.1 %)" in text
    assert "| rank 2 as fast as the median of its peers | 1.12 ms | 28.7 % |" in text
    console = Console(file=io.StringIO(), width=120)
    print_predictions(analysis, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "gains overlap and do not add up" in shown
    assert "rank 2 as fast as the median of its peers 1.12 ms 28.7 %" in " ".join(shown.split())


def test_a_recording_that_is_not_replayed_says_why() -> None:
    analysis = analyze_trace(Training(data=2, steps=3).trace())
    console = Console(file=io.StringIO(), width=120)
    print_predictions(analysis, console)
    expected = "Nothing predicted: 2 steps can be compared; a replay needs 3\n"
    assert console.file.getvalue().endswith(expected)  # type: ignore[attr-defined]
    assert "Predicted" not in render_markdown(profile_document(analysis, "mine"))


def test_of_many_ranks_the_outliers_are_shown() -> None:
    many = Training(data=48, speed=lambda rank, _: 1.3 if rank == 40 else 1.0, steps=6)
    analysis = analyze_trace(many.trace())
    document = profile_document(analysis, "mine")
    text = render_markdown(document)
    assert " of 48 ranks, those that differ most; all are in the JSON" in text
    assert "| 95 % below |" in text
    html = render_html(document)
    assert "compute beyond the median, by rank and step" in html
    assert "15 to 50 % longer" in html
    assert len(html) < 5_000_000
    console = Console(file=io.StringIO(), width=160)
    print_analysis(analysis, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.split()[0] for line in shown.splitlines() if line.strip()]
    assert "40" in lines
    assert 0 < sum(line.isdigit() for line in lines) <= 32


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


def test_the_page_has_the_chart_and_no_empty_line_for_cells(late: ProfileAnalysis) -> None:
    page = render_html(profile_document(late, "mine"))
    assert 'class="charts first-chart"' in page
    assert '<p class="where"></p>' not in page


def printed(analysis: ProfileAnalysis, target: ProfileTarget) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_analysis(analysis, console, target)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_peak_of_each_rank_is_shown_where_it_was_recorded(late: ProfileAnalysis) -> None:
    assert "peak memory" not in printed(late, ProfileTarget.MEMORY)
    first, *others = late.per_rank
    ranks = (first.model_copy(update={"peak_memory_bytes": 118 << 20}), *others)
    text = printed(late.model_copy(update={"per_rank": ranks}), ProfileTarget.MEMORY)
    assert "peak memory" in text
    (row,) = [line for line in text.splitlines() if "118 MiB" in line]
    assert row.split()[0] == str(first.rank)


def test_operations_have_their_bandwidth_and_no_count_of_what_was_not_kept(
    late: ProfileAnalysis,
) -> None:
    (one, *_) = late.collectives
    rated = one.model_copy(update={"bus_bytes_per_second": 889e6})
    many = late.model_copy(update={"collectives": (rated,) * 35})
    text = printed(many, ProfileTarget.SYNC_STALLS)
    assert "busbw" in text
    assert text.count("889 MB/s") == 10
    assert "… and more, in the report" in text
