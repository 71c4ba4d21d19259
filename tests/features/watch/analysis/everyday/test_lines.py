"""The function in which slow steps are longer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import MS, TRAIN, Job, line
from torchscale.features.watch.analysis.everyday.lines import lines_in, slow_lines, work_in

LOG = line("train.py:40 log_metrics", "savefig")
SLOW = tuple(range(25, 600, 25))


def marks(steps: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(600, bool)
    found[list(steps)] = True
    return found


def test_a_function_has_what_slow_steps_are_longer_there() -> None:
    watched = Job().add("log", 1, list(SLOW), 0.15).at("log", LOG).watched()
    lines, work = slow_lines(watched, 1, SLOW, 0.15)

    assert work is not None
    assert work.place == "train.py:40 (log_metrics)"
    assert work.does == "draws a figure"
    assert work.seconds == pytest.approx(0.15, rel=0.1)
    assert [place for place, _ in lines] == [LOG]


def test_a_function_that_is_in_all_steps_alike_is_not_why_some_are_slow() -> None:
    job = Job().add("always", 1, slice(None), 20 * MS).at("always", line("net.py:5 forward"))
    watched = job.add("log", 1, list(SLOW), 0.15).at("log", LOG).watched()
    lines, _ = slow_lines(watched, 1, SLOW, 0.15)

    assert [place for place, _ in lines] == [LOG]


def test_two_functions_that_share_it_are_no_single_one() -> None:
    job = Job().add("a", 1, list(SLOW), 75 * MS).at("a", line("a.py:1 a"))
    watched = job.add("b", 1, list(SLOW), 75 * MS).at("b", line("b.py:1 b")).watched()
    lines, work = slow_lines(watched, 1, SLOW, 0.15)

    assert len(lines) == 2
    assert work is None or work.share < 0.65


def test_lines_of_one_function_are_one_function() -> None:
    job = Job().add("a", 1, list(SLOW), 75 * MS).at("a", line("log.py:1 log"))
    watched = job.add("b", 1, list(SLOW), 75 * MS).at("b", line("log.py:9 log")).watched()
    _, work = slow_lines(watched, 1, SLOW, 0.15)

    assert work is not None
    assert work.share > 0.85


def test_lines_outside_of_functions_are_each_for_itself() -> None:
    job = Job().add("a", 1, list(SLOW), 75 * MS).at("a", line("log.py:1 <module>"))
    watched = job.add("b", 1, list(SLOW), 75 * MS).at("b", line("log.py:9 <module>")).watched()
    _, work = slow_lines(watched, 1, SLOW, 0.15)

    assert work is None or work.share < 0.65


def test_steps_that_are_slow_by_chance_have_no_lines() -> None:
    watched = Job().add("log", 1, list(SLOW), 0.15).at("log", LOG).watched()
    steps = tuple(range(31, 600, 25))
    lines, work = slow_lines(watched, 1, steps, 1 * MS)

    assert LOG not in [place for place, _ in lines]
    assert work is None or work.line == TRAIN


def test_without_samples_there_are_no_lines() -> None:
    watched = Job().watched()
    none = np.zeros(600, bool)
    seconds = np.ones(600)

    assert lines_in(watched.evidence[0], none, ~none, seconds) == []
    assert work_in(watched.evidence[0], none, ~none, seconds) is None
