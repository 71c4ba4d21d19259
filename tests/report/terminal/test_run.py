"""The table of a run fits its terminal, with the interval beside a figure or below it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.factories import cells, launch_record, run
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.terminal.run import print_results


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    """Three launches at two counts; those of two ranks differ by a factor of four."""
    seconds = {1: (0.001, 0.00101, 0.00099), 2: (0.001, 0.002, 0.004)}
    launches = {
        cell.id: [
            launch_record(cell, number, [value] * 10)
            for number, value in enumerate(seconds[cell.world_size])
        ]
        for cell in cells()
    }
    return summarize(run(launches, benchmark={"repeats": 3}))


def printed(summary: RunSummary, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_results(summary, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_narrow_terminal_has_intervals_below_and_cuts_nothing(summary: RunSummary) -> None:
    lines = printed(summary, 80)
    table = lines[: lines.index("", 1)]
    assert max(map(len, table)) <= 80
    assert not any("…" in line for line in table)
    (place,) = [number for number, line in enumerate(table) if "50.0 %" in line]
    assert "80,000" in table[place]
    assert table[place + 1].split() == ["14,298", "to", "447,600", "9", "to", "280", "%"]


def test_a_wide_one_has_them_beside(summary: RunSummary) -> None:
    (row,) = [line for line in printed(summary, 140) if "50.0 %" in line]
    assert "80,000 (14,298 to 447,600)" in row
    assert "50.0 % (9 to 280 %)" in row
