"""One cell as a vertical table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.report.test_machine import machine_summary
from tests.report.test_one_number import cell as two_ranks
from tests.report.test_one_number import summary
from torchscale.report.formats.console import print_pairs
from torchscale.report.sections.one_cell import cell_rows
from torchscale.report.text.cell_values import efficiency_value
from torchscale.report.text.figures import DEFINED
from torchscale.report.text.lost_parts import LOST_PARTS
from torchscale.schema.state import State


def test_every_figure_has_the_text_of_the_report() -> None:
    rows = dict(cell_rows(summary(), two_ranks()))
    assert rows["cell"] == two_ranks().cell.id
    assert (rows["strategy"], rows["batch"], rows["CPU ranks"]) == (
        "ddp",
        "batch 8, 16 in all",
        "2",
    )
    assert rows["efficiency"] == efficiency_value(two_ranks()).text
    shown = [quantity for quantity in DEFINED if quantity.heading in rows]
    assert {quantity.heading for quantity in shown} >= {
        "samples/s",
        "mean step",
        "p50",
        "forward",
        "backward",
    }
    assert [
        quantity.heading
        for quantity in shown
        if rows[quantity.heading] != quantity.of(two_ranks()).text
    ] == []
    lost = two_ranks().decomposition
    assert lost is not None
    assert [rows[part.heading] for part in LOST_PARTS] == [
        part.of(lost).text for part in LOST_PARTS
    ]


def test_what_was_not_measured_has_no_row() -> None:
    rows = dict(cell_rows(summary(), two_ranks()))
    assert "tokens/s" not in rows
    assert "joules/step" not in rows
    assert "reason" not in rows
    assert "–" not in rows.values()


@pytest.mark.parametrize("kind", ["hardware", "collectives", "memory"])
def test_a_cell_of_the_machine_has_its_main_figures_or_the_reason(kind: str) -> None:
    measured = machine_summary()
    for machine_cell in (cell for cell in measured.machine if cell.cell.kind == kind):
        rows = dict(cell_rows(measured, machine_cell))
        assert rows["cell"] == machine_cell.cell.id
        assert ("result" in rows) is (machine_cell.state is State.OK)
        assert ("reason" in rows) is (machine_cell.state is not State.OK)


def test_a_word_without_room_stands_below_its_name_alone() -> None:
    console = Console(file=io.StringIO(), width=40, color_system=None)
    print_pairs([("cell", "x" * 33), ("exposed", "1.00 ms"), ("finding", "a word " * 8)], console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "cell",
        f"  {'x' * 33}",
        "exposed  1.00 ms",
        "finding  a word a word a word a word a",
        "         word a word a word a word",
    ]


def test_it_is_printed_with_names_on_the_left() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    print_pairs(cell_rows(summary(), two_ranks()), console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0].split() == ["cell", two_ranks().cell.id]
    assert max(map(len, lines)) <= 80
