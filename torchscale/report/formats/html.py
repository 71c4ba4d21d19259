"""The report as one HTML file: works offline, sends no requests, and runs only its own scripts."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from torchscale.report.document import Bullets, ChartGrid, Document, Paragraph, Table, TableValue, Tone
from torchscale.report.formats.chart_plotly import chart_json, script_json
from torchscale.util.gc import gc_paused

_ROWS_ON_PAGE = 250
"""A table with more rows is embedded as JSON and shown in pages: thousands of rows in the DOM make a browser slow."""
_ROWS_AT_FIRST = 100
"""Rows of a page of such a table; report.js turns pages of the same size."""
_TONES = list(Tone)
_PLAIN = Tone.PLAIN


@gc_paused()
def render_html(document: Document, version: str | None = None) -> str:
    """The whole page; equal documents give equal bytes.

    ``version`` makes a live page: it polls its server for the current version, and reloads when that differs. A
    page without it sends no requests.
    """
    plotly = _plotly_script() if document.charts else ""
    script = template_environment().get_template("report.js").render()
    live = "" if version is None else template_environment().get_template("live.js").render()
    charts = {id(chart): number for number, chart in enumerate(document.charts)}
    return (
        template_environment()
        .get_template("report.html")
        .render(
            document=document,
            style=Markup(template_environment().get_template("report.css").render()),  # noqa: S704 - our own file
            plotly=Markup(plotly),  # noqa: S704 - plotly's own release
            script=Markup(script),  # noqa: S704 - our own file
            live=Markup(live),  # noqa: S704 - our own file
            version=version,
            policy=_policy(plotly, script, live),
            chart_number=lambda chart: charts[id(chart)],
            chart_json=lambda chart: Markup(chart_json(chart)),  # noqa: S704 - chart_json escapes for scripts
            kind=block_kind,
            table_json=lambda table: Markup(_table_json(table)),  # noqa: S704 - it escapes for scripts
            rows_on_page=_ROWS_ON_PAGE,
            rows_at_first=_ROWS_AT_FIRST,
        )
    )


def _table_json(table: Table) -> str:
    """All rows for the page's script: a text, or a text with what it sorts by and the number of its tone."""
    return script_json([[_compact(value) for value in row] for row in table.rows])


def _compact(value: TableValue) -> str | list[object]:
    text, sort, tone = value
    if sort == text:
        sort = None
    elif isinstance(sort, float):
        sort = float(f"{sort:.7g}")
    if tone is not _PLAIN:
        return [text, sort, _TONES.index(tone)]
    return text if sort is None else [text, sort]


def _policy(*scripts: str) -> str:
    """A content-security policy that allows these scripts by their hash, and no request but that of the last script
    to its own server, where there is one."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts if script)
    connect = "connect-src 'self'; " if scripts[-1] else ""
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        f"{connect}base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def block_kind(block: object) -> str:
    """The template's name for a block."""
    names = {Paragraph: "paragraph", Bullets: "bullets", Table: "table", ChartGrid: "charts"}
    return names[type(block)]


@cache
def template_environment() -> Environment:
    """Templates of the package, with every value escaped."""
    return Environment(
        loader=PackageLoader("torchscale.report.formats"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _plotly_script() -> str:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - reads 4.8 MB

    # An inline script must not contain its own end tag; inside plotly's strings the slash may be escaped.
    return str(get_plotlyjs()).replace("</script", "<\\/script")
