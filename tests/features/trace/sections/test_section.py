from __future__ import annotations

import io

from rich.console import Console

from tests.features.trace.analysis.test_analyze import training
from tests.features.trace.replay.simulator import Training
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.sections.document import profile_document
from torchscale.features.trace.terminal import print_analysis, print_predictions
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf


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
