"""Tables whose columns say what they show of a row."""

from __future__ import annotations

import pytest

from torchscale.report.table import Column, ColumnOf, table_of
from torchscale.report.values import DASH, TableValue, Tone
from torchscale.util.units import format_bytes

Row = tuple[str, int | None]
MARKED = TableValue("late", 2, Tone.CAUTION)
COLUMNS: tuple[ColumnOf[Row], ...] = (
    ColumnOf("name", lambda row: row[0], prose=True),
    ColumnOf("size", lambda row: row[1], format_bytes),
    ColumnOf("mark", lambda row: MARKED, numeric=True),
)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("a", 2048), (TableValue("a"), TableValue("2.00 KiB", 2048), MARKED)),
        (("", 0), (TableValue(""), TableValue("0 B", 0), MARKED)),
        (("b", None), (TableValue("b"), DASH, MARKED)),
    ],
)
def test_a_row_has_what_each_column_shows_of_it(row: Row, expected: tuple[TableValue, ...]) -> None:
    table = table_of("Sizes", COLUMNS, [row], searchable=True)
    assert table.rows == (expected,)
    assert (table.caption, table.searchable) == ("Sizes", True)


def test_figures_are_set_to_the_right_and_texts_to_the_left() -> None:
    assert table_of("Sizes", COLUMNS, []).columns == (
        Column("name", prose=True),
        Column("size", True),
        Column("mark", True),
    )


def test_a_column_may_be_left_out_and_what_identifies_a_row_comes_first() -> None:
    columns = (*COLUMNS[:1], ColumnOf[Row]("size", lambda row: row[1], str, shown=False))
    identity = ((Column("cell"),), [(TableValue("one"),), (TableValue("two"),)])
    table = table_of("Names", columns, [("a", 1), ("b", 2)], identity)
    assert [column.title for column in table.columns] == ["cell", "name"]
    assert [[value.text for value in row] for row in table.rows] == [["one", "a"], ["two", "b"]]
    with pytest.raises(ValueError, match="shorter"):
        table_of("Names", columns, [("a", 1)], identity)
