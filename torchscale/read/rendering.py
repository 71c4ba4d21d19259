"""A document as the bytes of a file; what ``report`` and ``compare`` share."""

from __future__ import annotations

from torchscale.config.choices import CompareFormat, ReportFormat
from torchscale.report.document import Document


def render_document(
    kind: ReportFormat | CompareFormat, document: Document, *, summary: bool = False
) -> bytes:
    """Render as HTML, PDF or Markdown; a ``summary`` is short Markdown.

    Raises:
        ValueError: ``kind`` is a format that is not made from a document.
        MachineError: a system library that PDF needs is missing.
    """
    if kind.value == ReportFormat.PDF.value:
        from torchscale.report.formats.pdf import render_pdf  # noqa: PLC0415 - loads system libraries

        return render_pdf(document)
    if kind.value == ReportFormat.MARKDOWN.value:
        from torchscale.report.formats.markdown import render_markdown, render_summary  # noqa: PLC0415 - one format a call

        return (render_summary(document) if summary else render_markdown(document)).encode()
    if kind.value == ReportFormat.HTML.value:
        from torchscale.report.formats.html import render_html  # noqa: PLC0415 - one format a call

        return render_html(document).encode()
    raise ValueError(f"{kind.value} is not made from a document")
