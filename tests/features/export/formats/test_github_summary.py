"""The job summary: a table, within GitHub's bound, that no text breaks out of."""

from __future__ import annotations

import re

from tests.features.export.formats.runs import CHECKS, HOSTILE, RUN, cell
from tests.report.test_machine import machine_summary
from torchscale.features.export.formats import github_summary
from torchscale.features.export.formats.github_summary import MAX_BYTES
from torchscale.report.figures.figure import ExportedRun
from torchscale.report.figures.run import exported_run
from torchscale.schema.state import State


def rows(run: ExportedRun) -> list[list[str]]:
    """Texts of the table's rows, every one as long as its header."""
    lines = [line for line in github_summary.render(run).text.splitlines() if line.startswith("|")]
    split = [[part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert split[1] == ["---"] * len(split[0])
    assert {len(row) for row in split} == {len(split[0])}
    return split[2:]


def test_what_failed_comes_first() -> None:
    text = github_summary.render(RUN).text
    assert text.startswith("## torchscale: nightly\n")
    assert "3 ok, 1 oom" in text
    found = rows(RUN)
    assert [row[0] for row in found] == [
        "oom",
        "lost",
        "skipped",
        "waiting",
        "gpt2-n2",
        "comm",
        "flagged",
    ]
    assert found[0][1:4] == ["oom\\: out of memory", "–", "–"]
    assert found[4][2:4] == ["1450 samples/s (1441 to 1460)", "0.02 s"]
    assert found[5][6] == "bus\\_bandwidth\\_bytes\\_per\\_second all\\_reduce 3e+09 B/s"
    assert found[6][7] == "noisy"


def test_checks_are_a_table_too() -> None:
    assert [row[1] for row in rows(CHECKS)] == ["fail", "warn", "pass", "n/a"]


def test_no_text_breaks_out_of_its_row() -> None:
    text = github_summary.render(HOSTILE).text
    assert len(rows(HOSTILE)) == 2
    for wrong in ("<&>", "[y](http", " @all", "\x1b", "\x00", "`x`"):
        assert wrong not in text
    assert "\\<\\&\\>" in text


def test_the_summary_is_bounded_and_says_what_is_missing() -> None:
    cells = tuple(
        cell(id=f"c{number}", state=State.CRASHED, reason="ü" * 1000, figures=())
        for number in range(3000)
    )
    exported = github_summary.render(ExportedRun("big", cells))
    size = len(exported.text.encode())
    assert 0.95 * MAX_BYTES < size <= MAX_BYTES
    (note,) = exported.notes
    kept = len(re.findall(r"^\| c\d", exported.text, re.MULTILINE))
    assert note == f"{3000 - kept} of 3000 rows do not fit into a job summary and were left out"
    assert exported.text.endswith(f"*{note}.*\n")


def test_a_whole_run_of_every_kind_is_exported() -> None:
    summary = machine_summary()
    assert len(rows(exported_run(summary))) == len(summary.in_plan_order)
