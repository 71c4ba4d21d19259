"""Tables on paper: none is wider than its page."""

from __future__ import annotations

import io
from typing import Any

import pypdf

from torchscale.report.document import Document, Section
from torchscale.report.formats.paper import breakable, paper_tables
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue

RIGHT_MARGIN = 13 / 25.4 * 72
"""Points."""


def table(*names: str, columns: int = 6, figure: str = "1,508 (1,489 to 1,557)") -> Table:
    heads = (
        Column("model", identifies=True),
        *(Column(f"c{number}", True) for number in range(columns)),
    )
    figures = [TableValue(figure, float(number)) for number in range(columns)]
    rows = tuple((TableValue(name), *figures) for name in names)
    return Table("t", heads, rows)


def test_a_table_that_fits_keeps_its_type_and_its_names() -> None:
    (found,) = paper_tables(table("tiny-resnet", columns=3))
    assert not found.dense
    assert found.table.caption == "t"


def test_a_table_that_is_too_wide_gets_the_smaller_type() -> None:
    (found,) = paper_tables(table("tiny-resnet", columns=7, figure="1,508 MiB"))
    assert not found.dense
    (found,) = paper_tables(table("model_of_a_very_long_name_that_nothing_breaks=x", columns=5))
    assert found.dense


def test_a_table_that_is_too_wide_even_so_goes_in_parts() -> None:
    parts = paper_tables(
        table(
            "tiny-resnet", columns=9, figure="123,456,789.123 (123,456,789.123 to 123,456,789.123)"
        )
    )
    assert len(parts) > 1
    assert {part.table.columns[0].title for part in parts} == {"model"}
    assert sum(len(part.table.columns) - 1 for part in parts) == 9


def test_long_names_may_break_after_an_underscore_and_an_equals_sign() -> None:
    assert (
        breakable("reshard_after_forward=false") == "reshard_\u200bafter_\u200bforward=\u200bfalse"
    )
    assert breakable("bf16 fsdp") == "bf16 fsdp"


def test_no_rule_of_a_table_goes_beyond_the_margin() -> None:
    names = ("model", "setting", "batch", "GPUs")
    columns = (
        *(Column(name, name in {"batch", "GPUs"}, identifies=True) for name in names),
        Column("state"),
        *(Column(name, True) for name in ("samples/s", "efficiency", "peak allocated")),
        Column("reason or warnings", prose=True),
    )
    texts = (
        "tiny-decoder (sequence_length=32)",
        "bf16 fsdp reshard_after_forward=false",
        "128",
        "8",
        "ok",
    )
    figures = (
        "1,508 (1,489 to 1,557)",
        "87.2 % (85.3 to 89.1 %)",
        "12.0 GiB",
        "contended, drifting, noisy",
    )
    cells = Table("All cells", columns, (tuple(TableValue(text) for text in texts + figures),) * 2)
    document = Document("t", "", (), (), (Section("s", "s", (cells,)),))
    (page,) = pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages
    assert _rightmost_fill(page) <= float(page.mediabox.width) - RIGHT_MARGIN + 1


def _rightmost_fill(page: Any) -> float:
    """Right end of the page's rectangles, which are headings' backgrounds and the rules between
    rows."""
    ends = [0.0]

    def see(operator: bytes, operands: list[Any], matrix: list[float], _: list[float]) -> None:
        if operator == b"re":
            left, _bottom, width, _height = (float(value) for value in operands)
            ends.append((left + width) * matrix[0] + matrix[4])

    page.extract_text(visitor_operand_before=see)
    return max(ends)


def test_a_unit_is_not_broken_at_its_stroke() -> None:
    titles = (
        "batch",
        "CPU ranks",
        "per step",
        "per device",
        "MFU",
        "FLOP/byte",
        "roof",
        "roof ÷ achieved",
    )
    columns = (
        Column("model", identifies=True),
        *(Column(title, True) for title in titles),
        Column("bound by"),
    )
    figures = (
        "16",
        "2",
        "33.3 MFLOP",
        "5.21 GFLOP/s",
        "31.7 %",
        "2.45",
        "15.7 GFLOP/s",
        "6.22",
        "overhead",
    )
    rows = ((TableValue("tiny-resnet"), *(TableValue(figure) for figure in figures)),)
    document = Document("t", "", (), (), (Section("s", "s", (Table("t", columns, rows * 2),)),))
    (page,) = pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages
    assert page.extract_text().count("GFLOP/s") == 4
