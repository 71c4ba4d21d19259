"""The report as one HTML file: works offline, sends no requests, and runs only its own scripts."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from torchscale.report.charts import AnyChart, Chart, StackedChart, TimelineChart
from torchscale.report.document import Bullets, ChartGrid, Details, Document, Paragraph, Section
from torchscale.report.formats.charts.chart_helper import Drawing, chart_helper
from torchscale.report.formats.charts.chart_screen import ScreenChart, screen_width, script_json
from torchscale.report.table import Table
from torchscale.report.values import DASH, TableValue, Tone
from torchscale.util.gc import gc_paused
from torchscale.util.text import strip_control

_ROWS_ON_PAGE = 250
"""A table with more rows is embedded as JSON and shown in pages: thousands of rows in the DOM make
a browser slow."""
_ROWS_AT_FIRST = 100
"""Rows of a page of such a table; report.js turns pages of the same size."""
_FEW_ROWS = 1
"""Nothing to filter or to sort."""
_MAX_EXAMPLES = 4
_ROOMY_COLUMNS = 9
"""Up to this many columns, figures with their intervals fit on one line each where the window is
1,100 pixels wide."""
_SHORT_NAME = 16
"""Characters of a model's name that stay on one line; longer ones are of several words."""
_KINDS = {
    Paragraph: "paragraph",
    Bullets: "bullets",
    Table: "table",
    ChartGrid: "charts",
    Details: "details",
    Chart: "chart",
    StackedChart: "bars",
    TimelineChart: "timeline",
}
_TONES = list(Tone)
_PLAIN = Tone.PLAIN


@gc_paused()
def render_html(document: Document, version: str | None = None) -> str:
    """The whole page; equal documents give equal bytes.

    ``version`` makes a live page: it polls its server for the current version, and reloads when
    that differs. A page without it sends no requests.
    """
    script = template_environment().get_template("report.js").render()
    live = ""
    if version is not None:
        live = template_environment().get_template("live.js").render()
    charts = {id(chart): number for number, chart in enumerate(document.charts)}
    first_chart = None if document.overview is None else document.overview.chart

    def drawing(chart: AnyChart, *, first: bool) -> Drawing:
        width = "large" if first else screen_width(chart)
        return Drawing(chart, f"chart-{charts[id(chart)]}", width)

    drawings = [drawing(chart, first=chart is first_chart) for chart in document.charts]
    # A live page is rendered again and again in one process, which keeps its drawings.
    with chart_helper(drawings if version is None else ()) as helper:

        def draw(chart: AnyChart, *, first: bool) -> ScreenChart:
            return helper.drawn(drawing(chart, first=first))

        return (
            template_environment()
            .get_template("report.html")
            .render(
                document=document,
                style=Markup(template_environment().get_template("report.css").render()),  # noqa: S704 - our own file
                script=Markup(script),  # noqa: S704 - our own file
                live=Markup(live),  # noqa: S704 - our own file
                version=version,
                policy=_policy(script, live),
                chart_number=lambda chart: charts[id(chart)],
                draw=draw,
                unescaped=Markup,
                kind=block_kind,
                unfolded=[section for section in document.sections if section.unfolded],
                groups=section_groups(
                    section for section in document.sections if not section.unfolded
                ),
                anchors={section.anchor for section in document.sections},
                small_charts=lambda grid: all(
                    screen_width(chart) == "small" for chart in grid.charts
                ),
                filter_examples=_filter_examples,
                unbroken=unbroken,
                unbroken_units=unbroken_units,
                table_json=lambda table: Markup(_table_json(table)),  # noqa: S704 - it escapes for scripts
                rows_on_page=_ROWS_ON_PAGE,
                rows_at_first=_ROWS_AT_FIRST,
                few_rows=_FEW_ROWS,
                roomy_columns=_ROOMY_COLUMNS,
                short_name=_SHORT_NAME,
            )
        )


def _table_json(table: Table) -> str:
    """All rows for the page's script: a text, or a text with what it sorts by and the number of its
    tone."""
    return script_json([[_compact(value) for value in row] for row in table.rows])


def _compact(value: TableValue) -> str | list[object]:
    text, sort, tone = value
    text = strip_control(text)
    if sort == value.text:
        sort = None
    elif isinstance(sort, float):
        sort = float(f"{sort:.7g}")
    if tone is not _PLAIN:
        return [text, sort, _TONES.index(tone)]
    if sort is None:
        return text
    return [text, sort]


def _policy(*scripts: str) -> str:
    """A content-security policy that allows these scripts by their hash, and no request but that of
    the last script to its own server, where there is one."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts if script)
    connect = ""
    if scripts[-1]:
        connect = "connect-src 'self'; "
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "font-src data:; "
        f"{connect}base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def block_kind(block: object) -> str:
    """The template's name for a block or a chart."""
    return _KINDS[type(block)]


def section_groups(sections: Iterable[Section]) -> list[tuple[str, tuple[Section, ...]]]:
    """Sections by the name of their group, which is empty for those without, in order."""
    grouped = itertools.groupby(sections, key=lambda section: section.group)
    return [("" if group is None else group.value, tuple(members)) for group, members in grouped]


def unbroken(text: str) -> str:
    """A figure with its unit on one line; what stands in parentheses may go to the next."""
    return re.sub(r" (?!\()", "\u00a0", text)


def unbroken_units(text: str) -> str:
    """A sentence whose numbers stay on one line with their units."""
    return re.sub(r"(?<=\d) (?=%|[kMGTP]?i?B\b|ms\b|µs\b|s\b)|(?<=^\+) ", "\u00a0", text)


def _filter_examples(table: Table) -> list[str]:
    """``batch:8``: a few questions that the table's first row answers."""
    columns = enumerate(table.columns)
    named = [
        (column.aliases[0] if column.aliases else column.title, number)
        for number, column in columns
    ]
    if table.rows:
        first = table.rows[0]
    else:
        first = ()
    if first:
        pairs = [
            (name.lower(), first[number].text) for number, name in ((n, name) for name, n in named)
        ]
    else:
        pairs = []
    plain = [
        f"{name}:{text}" for name, text in pairs if " " not in f"{name}{text}" and text != DASH.text
    ]
    return plain[:_MAX_EXAMPLES]


def _plain(value: object) -> object:
    """A value as a page shows it; markup is our own."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return strip_control(value)
    return value


@cache
def template_environment() -> Environment:
    """Templates of the package, with every value escaped and without control characters, whoever
    wrote it."""
    return Environment(
        loader=PackageLoader("torchscale.report.formats"),
        autoescape=True,
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
