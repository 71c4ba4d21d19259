"""The report as a PDF: pages with numbers, charts as vectors, text that can be searched; needs no
browser."""

from __future__ import annotations

from torchscale.errors import MachineError
from torchscale.report.charts import AnyChart
from torchscale.report.document import Document
from torchscale.report.formats.charts.chart_svg import chart_svg, chart_width
from torchscale.report.formats.html import (
    block_kind,
    section_groups,
    template_environment,
    unbroken,
    unbroken_units,
)
from torchscale.report.formats.paper import breakable, paper_tables
from torchscale.report.table import MAX_PAPER_ROWS


def render_pdf(document: Document) -> bytes:
    """The whole file; equal documents give equal bytes.

    Raises:
        MachineError: the system's text layout library (Pango) is missing.
    """
    try:
        from weasyprint import HTML  # noqa: PLC0415 - 0.35 s, and loads system libraries
        from weasyprint.urls import URLFetcher  # noqa: PLC0415
    except OSError as error:
        raise MachineError(
            f"PDF needs the Pango library, which cannot be loaded: {str(error).splitlines()[0]}",
            hint="on Debian or Ubuntu: apt-get install libpango-1.0-0 libpangoft2-1.0-0; the HTML "
            "report needs none",
        ) from error
    from markupsafe import Markup  # noqa: PLC0415

    numbers = {id(chart): number for number, chart in enumerate(document.charts)}

    def svg(chart: AnyChart) -> Markup:
        return Markup(chart_svg(chart, f"chart{numbers[id(chart)]}"))  # noqa: S704 - matplotlib escapes its texts

    template = template_environment().get_template("report_pdf.html")
    page = template.render(
        document=document,
        screen_only=[section.title for section in document.sections if not section.on_paper],
        unfolded=[section for section in document.sections if section.unfolded],
        groups=section_groups(
            section for section in document.sections if section.on_paper and not section.unfolded
        ),
        chart_svg=svg,
        chart_width=chart_width,
        kind=block_kind,
        max_rows=MAX_PAPER_ROWS,
        paper_tables=paper_tables,
        breakable=breakable,
        unbroken=unbroken,
        unbroken_units=unbroken_units,
    )
    # Nothing in a page may make weasyprint read a file or ask a network: only inline data is
    # fetched.
    fetcher = URLFetcher(allowed_protocols={"data"})
    # PDF/UA-1: headings, lists, tables and charts are tagged, for screen readers and for text that
    # is copied.
    pdf = HTML(string=page, url_fetcher=fetcher).write_pdf(
        pdf_identifier=b"torchscale-report", pdf_variant="pdf/ua-1"
    )
    return bytes(pdf)
