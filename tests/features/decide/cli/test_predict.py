"""``predict`` through the whole program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import torchscale


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "points.csv").write_text("gpus,nodes,throughput\n8,1,1000\n16,2,1900\n")
    return tmp_path


def test_a_table_gives_predictions_with_intervals(table: Path) -> None:
    done = torchscale(
        table, "predict", "--table", "points.csv", "--gpus", "32,64", "--cost", "2.5", columns=80
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Predicted from 8, 16 GPUs: the table (basis extrapolated)"
    (row,) = [number for number, line in enumerate(lines) if line.startswith("  32 ")]
    assert "interval" in lines[row - 1]
    assert [line.split()[0] for line in lines[row : row + 2]] == ["32", "64"]
    assert all("$" in line for line in lines[row : row + 2])
    assert done.stderr == ""


def test_a_refusal_exits_with_3_and_says_what_to_measure(table: Path) -> None:
    (table / "one.csv").write_text("gpus,throughput\n4,500\n8,1000\n")
    done = torchscale(table, "predict", "--table", "one.csv", "--gpus", "64")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "only one node was measured" in done.stderr
    assert "measure two nodes, three launches each" in done.stderr
    printed = torchscale(table, "predict", "--table", "one.csv", "--gpus", "64", "--json")
    assert printed.returncode == 3
    content = json.loads(printed.stdout)
    assert content["predictions"] == []
    assert "only one node" in content["refused"]


def test_json_has_the_promised_keys(table: Path) -> None:
    done = torchscale(table, "predict", "--table", "points.csv", "--gpus", "32", "--json")
    content = json.loads(done.stdout)
    (one,) = content["predictions"]
    assert {"gpus", "throughput", "low", "high", "efficiency", "law"} <= set(one)
    assert one["low"] < one["throughput"] < one["high"]
    assert content["refused"] is None


def test_a_report_with_a_chart_is_written(table: Path) -> None:
    done = torchscale(
        table, "predict", "--table", "points.csv", "--gpus", "32", "-o", "predict.html"
    )
    assert done.returncode == 0, done.stderr
    assert "Predicted scaling" in (table / "predict.html").read_text()
    wrong = torchscale(
        table, "predict", "--table", "points.csv", "--gpus", "32", "-o", "predict.csv"
    )
    assert wrong.returncode == 2
    assert not (table / "predict.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--gpus", "32"], "no run is named, and there is none in ./results"),
        (
            ["--gpus", "32", "--table", "points.csv", "--source", "."],
            "one source at a time, not 2: ., points.csv",
        ),
        (["--table", "points.csv"], "no count of GPUs"),
        (["--gpus", "many", "--table", "points.csv"], "expected a whole number"),
        (["--gpus", "32", "--table", "none.csv"], "cannot read none.csv"),
        (["--gpus", "32", "--source", "nowhere"], "there is no run 'nowhere'"),
        (["--gpus", "32", "--table", "points.csv", "--link", "x"], "unknown link"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    table: Path, arguments: list[str], expected: str
) -> None:
    done = torchscale(table, "predict", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_many_refusals_are_a_line_each_and_at_most_a_screen(tmp_path: Path) -> None:
    lines = [f"s{number},{gpus},{gpus}" for number in range(30) for gpus in (4, 8)]
    (tmp_path / "many.csv").write_text("\n".join(["series,gpus,throughput", *lines]))
    done = torchscale(
        tmp_path, "predict", "--table", "many.csv", "--gpus", "64", "--gpus-per-node", "8"
    )
    assert done.returncode == 3
    told = done.stderr.splitlines()
    assert told[0].startswith("refused: s0: 64 GPUs take 8 nodes of 8")
    assert told[-1] == "10 more refused; --json lists all"
    assert len(told) == 21
