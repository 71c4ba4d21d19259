"""Causes that are drawn by lot: each can be told from the job, and its right answer is there."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from cause_judge import JOBS
from cause_list import CAUSES, EVENTS, FAULTS, Answer, Draw, Injection, fault, says

RUNNER = JOBS.parent / "job_causes.py"
DRAWS = [Draw(Random(seed), ranks) for seed in range(40) for ranks in (2, 4)]
MADE = [(name, cause.make(draw), draw) for name, cause in CAUSES.items() for draw in DRAWS]


def option(injection: Injection, name: str) -> int:
    return int(injection.arguments[injection.arguments.index(name) + 1])


def test_every_place_is_a_function_of_its_file() -> None:
    for file, function in {place for _, made, _ in MADE for place in made.answer.places}:
        tree = ast.parse((JOBS / file).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in {*names, "<module>"}


def test_the_rank_is_one_of_the_job_and_the_program_gets_it() -> None:
    for name, made, draw in MADE:
        if made.answer.rank is not None:
            assert made.answer.rank < draw.ranks, name
            assert option(made, "--rank") == made.answer.rank, name


def test_a_run_shows_every_period_often_enough() -> None:
    for name, made, _ in MADE:
        if made.answer.period is not None:
            assert option(made, "--every") == made.answer.period, name
            assert option(made, "--steps") >= EVENTS * made.answer.period - 1, name


def test_a_run_is_the_same_each_time_it_is_drawn() -> None:
    for cause in CAUSES.values():
        first, second = (cause.make(Draw(Random("a run"), 4)) for _ in range(2))
        assert first == second


def test_what_is_drawn_differs_from_run_to_run() -> None:
    for name, cause in CAUSES.items():
        assert len({cause.make(draw).arguments for draw in DRAWS}) > len(DRAWS) / 4, name


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("Failed after 40 steps: rank 1 raised ValueError: not finite", True),
        ("Failed after 40 steps: rank 0 raised ValueError: not finite", False),
        ("Failed after 40 steps: rank 1 raised RuntimeError: closed by peer", False),
        ("Failed after 40 steps: rank 11 raised ValueError: not finite", False),
    ],
)
def test_a_first_line_needs_the_rank_and_the_reason(line: str, right: bool) -> None:
    assert says(line, Answer((), 1, words="ValueError")) is right


def test_no_fault_has_the_name_of_a_cause() -> None:
    assert not set(FAULTS) & set(CAUSES)


def test_every_fault_can_be_drawn() -> None:
    for name in FAULTS:
        assert fault(name, DRAWS[0]).answer.words


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("name", ["forward", "raise"])
def test_the_runner_keeps_a_run_and_does_not_make_it_again(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    command = [sys.executable, str(RUNNER), "--only", name, "--ranks", "2", "--json", str(kept)]
    for _ in range(2):
        subprocess.run([*command, "--strategies", "ddp"], check=True, timeout=280, cwd=tmp_path)
    (row,) = map(json.loads, kept.read_text().splitlines())
    assert (row["cause"], "problem" in row) == (name, False)
