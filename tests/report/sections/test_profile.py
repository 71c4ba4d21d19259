from __future__ import annotations

from tests.analysis.trace.test_analyze import training
from torchscale.analysis.trace.analyze import analyze_trace
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.sections.profile import profile_document


def test_one_recording_is_a_report_of_its_own() -> None:
    document = profile_document(analyze_trace(training([0.0, 100.0])), "mine")
    text = render_markdown(document)
    assert "# Training profile: mine" in text
    assert "Sync stall time: 5.0 %" in text
    assert "| all\\_reduce |" in text
    assert render_html(document).count("<h2") == 1
    assert render_pdf(document).startswith(b"%PDF")
