"""A run on the terminal: the first screen and the table of cells, which fits its width."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.factories import cells, launch_record, run
from tests.report.test_build import mixed_run
from tests.report.test_machine import machine_summary
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.terminal.run import print_run


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
    print_run(summary, Path("results/demo"), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_narrow_terminal_has_intervals_below_and_cuts_nothing(summary: RunSummary) -> None:
    lines = printed(summary, 66)
    (start,) = [number for number, line in enumerate(lines) if line.startswith("All cells")]
    table = lines[start : lines.index("", start)]
    assert max(map(len, table)) <= 66
    assert not any("…" in line for line in table)
    (place,) = [number for number, line in enumerate(table) if "50.0 %" in line]
    assert "80,000" in table[place]
    assert "(14,298 to 447,600)" in table[place + 1]
    assert "(9 to 280 %)" in table[place + 1]


def test_a_wide_one_has_them_beside(summary: RunSummary) -> None:
    (row,) = [
        line for line in printed(summary, 140) if line.startswith("tiny") and "50.0 %" in line
    ]
    assert "80,000 (14,298 to 447,600)" in row
    assert "50.0 % (9 to 280 %)" in row


def test_a_user_sees_the_verdict_what_failed_and_the_cells_and_where_the_rest_is() -> None:
    lines = printed(summarize(mixed_run()), 80)
    assert lines[0] == "Scales to 2 CPU ranks at 80.7 %, in single launches."
    assert any(line.startswith("Measured? 1 failed: 3 of 6 cells") for line in lines)
    assert "oom: tiny ResNet, fp32, batch 16, 2 devices: rank 1: CUDA out of memory" in lines
    assert any("79.6 (79.3 to 79.9)" in line for line in lines)
    assert lines[-2].startswith("Not shown: Scaling, Step times")
    assert lines[-1] == "The report has all: torchscale report results/demo"
    assert len(lines) < 40


def test_a_run_without_training_shows_what_the_machine_gives() -> None:
    measured = machine_summary()
    alone = replace(measured, in_plan_order=measured.machine)
    text = "\n".join(printed(alone, 120))
    assert "200 GFLOP/s" in text and "all_reduce" in text
    assert "memory of tiny ResNet at batch 16" in text, "it has no figures, and says why"
    assert "Method and caveats" not in text.split("Not shown:")[0]
