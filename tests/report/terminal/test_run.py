"""A run on the terminal: the first screen and the table of cells, which fits its width."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.factories import cells, launch_record, rank_record, run
from tests.features.trace.analysis.test_analyze import training
from tests.report.test_build import mixed_run
from tests.report.test_machine import machine_summary
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.report.terminal.run import print_run
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord


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


def printed(summary: RunSummary, width: int, price: float | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_run(summary, Path("results/demo"), console, price=price)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def drifting(cell: TrainingCell, seconds: float) -> LaunchRecord:
    """A launch that becomes slower."""
    return launch_record(cell, batches=[seconds * (1 + 0.02 * number) for number in range(10)])


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


def test_what_warnings_mean_and_remarks_are_one_list() -> None:
    plan = cells()
    summary = summarize(run({cell.id: [drifting(cell, 0.01)] for cell in plan}))
    lines = printed(summary, 200)
    items = [number for number, line in enumerate(lines) if line.startswith("- ")]
    explained = [number for number in items if lines[number].startswith("- drifting: ")]
    remarks = [number for number in items if lines[number].startswith("- An efficiency with *")]
    assert explained and remarks
    assert "" not in lines[explained[0] : remarks[0]]


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


def test_beside_the_cells_stands_what_the_machine_gives_and_what_their_signs_mean() -> None:
    lines = printed(machine_summary(), 140)
    text = "\n".join(lines)
    assert "Matrix products" not in text.split("Not shown:")[0], (
        "tables of the machine are elsewhere"
    )
    (ceilings,) = [line for line in lines if "ceilings, n=1: " in line]
    assert "200 GFLOP/s" in ceilings
    assert any("all_reduce" in line and ", n=2: " in line for line in lines)
    assert not any("with * is" in line for line in lines)


def test_an_efficiency_with_a_star_says_what_the_star_means() -> None:
    one, two = cells()[:2]
    launches = {one.id: [drifting(one, 1.0)], two.id: [drifting(two, 1.2)]}
    lines = printed(summarize(run(launches)), 100)
    assert "%*" in "".join(lines)
    assert "- An efficiency with * is of a cell with a warning, or rests on one." in lines


def test_why_there_is_no_mfu_is_said_once_for_a_model() -> None:
    reason = "it does not run on the meta device: ValueError: no"
    first, second = cells()[:2]
    launches = {
        first.id: [launch_record(first, ranks=[rank_record(first, 0, flops_unknown=reason)])],
        second.id: [launch_record(second)],
    }
    lines = printed(summarize(run(launches)), 120)
    (line,) = [line for line in lines if "No MFU" in line]
    assert line == f"- No MFU of tiny ResNet: FLOPs unknown: {reason}."


def test_of_many_cells_the_warnings_are_explained_though_their_table_is_cut() -> None:
    content: dict[str, Any] = {"batch_sizes": list(range(1, 12))}
    *steady, last = cells(**content)
    launches = {cell.id: [launch_record(cell)] for cell in steady}
    launches[last.id] = [drifting(last, 1.0)]
    lines = printed(summarize(run(launches, **content)), 120)
    assert any(line.startswith("First 20 of 22 cells") for line in lines)
    (meaning,) = [line for line in lines if "drifting:" in line]
    assert "the first and last third of the steps differ by over 2 %" in meaning


def test_a_price_has_its_table_and_stays_in_the_line_for_the_report(summary: RunSummary) -> None:
    lines = printed(summary, 100, price=2.5)
    text = "\n".join(lines)
    assert "$" in text
    assert lines[-1] == "The report has all: torchscale report results/demo --cost 2.5"
    assert "Cost" not in text.split("Not shown:")[1]


def test_findings_of_a_run_that_was_profiled_alone_are_said_once() -> None:
    found = run({})
    profile = analyze_trace(training([0.0, 100.0]))
    recorded = replace(found.cells[0], launches=(), profile=profile)
    text = "\n".join(printed(summarize(replace(found, cells=(recorded,))), 200))
    assert text.count("the host hands out work late") == 1
    assert "share of each rank's window" in text, "and the tables of its profile"
