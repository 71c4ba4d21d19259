"""How the document shows what is absent, empty, doubtful, or there only under a condition; tables
without what tells nothing."""

from __future__ import annotations

from torchscale.report.charts import chart_name
from torchscale.report.table import Column, Table
from torchscale.report.values import (
    DASH,
    TableValue,
    Tone,
    caution_where,
    only_if,
    optional_text,
    optional_value,
    text_value,
)


def test_what_was_not_measured_is_a_dash() -> None:
    assert optional_text(None, str) == "–"
    assert optional_value(None, str) == DASH
    assert optional_text(0, str) == "0"
    assert optional_value(0, str) == TableValue("0", 0)


def test_an_empty_text_is_a_dash() -> None:
    assert text_value("", 3.0) == DASH
    assert text_value("14 %", 0.14) == TableValue("14 %", 0.14)


def test_what_is_doubtful_asks_for_caution() -> None:
    assert caution_where(("contended",)) is Tone.CAUTION
    assert caution_where(()) is Tone.PLAIN


def test_items_are_there_only_under_their_condition() -> None:
    assert [*only_if("host", 1, 2), *only_if("", 3)] == [1, 2]


def test_a_column_whose_rows_agree_moves_to_the_caption() -> None:
    columns = (Column("model"), Column("setting", optional=True), Column("HFU"))
    rows = tuple((TableValue(name), TableValue("ddp"), DASH) for name in ("a", "b"))
    compact = Table("Cells", columns, rows).compact()
    assert compact.caption == "Cells (setting ddp)"
    assert [column.title for column in compact.columns] == ["model"]


def test_names_of_charts_that_begin_alike_differ() -> None:
    long = "a model of many words " * 10
    assert chart_name("scaling", "ResNet-50, bf16") == "scaling-resnet-50-bf16"
    first, second = chart_name("scaling", f"{long}1"), chart_name("scaling", f"{long}2")
    assert first != second
    assert len(first) == len(second) <= 80
