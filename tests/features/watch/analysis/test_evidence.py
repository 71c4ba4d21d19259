"""Shares of the time that lines have, from samples and from the lengths of parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchscale.features.watch.analysis.evidence import SeenLines, TimeShare
from torchscale.features.watch.analysis.step_parts import PARTS, WHOLE
from torchscale.schema.watch.rank import ProgramLine

LINES = tuple(
    ProgramLine(file="train.py", line=line, function=function, called="", samples=0)
    for line, function in ((10, "log"), (20, "forward"), (21, "forward"))
)
ALL = np.ones(100, bool)


def seen(counts: dict[tuple[int, int], int], lengths: dict[int, float]) -> SeenLines:
    """Samples.

    Args:
        counts: (part, place) → samples.
        lengths: Part → its share of every step.
    """
    pairs = [pair for pair, count in counts.items() for _ in range(count)]
    part, place = np.array(pairs, np.int64).reshape(-1, 2).T
    shares = np.zeros(PARTS, np.uint8)
    for number, share in lengths.items():
        shares[number] = round(share * WHOLE)
    packed = np.repeat(shares.view(np.int64), len(pairs))
    return SeenLines(np.arange(len(pairs)) % 100, place, LINES, part, packed)


def of_line(lines: SeenLines) -> dict[int, TimeShare]:
    return {line.line: share for line, share in lines.time_shares(ALL, lambda one: one).items()}


def test_a_line_that_is_all_of_a_part_has_the_length_of_the_part() -> None:
    lines = seen({(0, 0): 8, (1, 1): 60, (1, 2): 32}, {0: 0.12, 1: 0.88})
    shares = of_line(lines)
    assert shares[10].share == pytest.approx(0.12, abs=0.002)
    assert shares[20].share == pytest.approx(0.88 * 60 / 92, abs=0.002)
    assert math.sqrt(shares[10].variance) < 0.3 * math.sqrt(0.08 * 0.92 / 100) * 2


def test_lines_are_summed_by_a_key() -> None:
    lines = seen({(0, 0): 8, (1, 1): 60, (1, 2): 32}, {0: 0.12, 1: 0.88})
    shares = lines.time_shares(ALL, lambda line: line.function)
    assert shares["forward"].samples == 92
    assert shares["forward"].share == pytest.approx(0.88, abs=0.002)


def test_a_part_that_was_hardly_seen_does_not_stand_for_its_lines() -> None:
    """Code that keeps Python's lock is sampled where it lets go of it."""
    shares = of_line(seen({(0, 0): 1, (1, 1): 99}, {0: 0.4, 1: 0.6}))
    assert shares[10].share == pytest.approx(0.02)


def test_without_parts_a_share_is_that_of_the_samples() -> None:
    shares = of_line(seen({(0, 0): 25, (0, 1): 75}, {}))
    assert shares[10].samples == 25
    assert shares[10].share == pytest.approx(0.25)
    assert math.sqrt(shares[10].variance) == pytest.approx(math.sqrt(0.25 * 0.75 / 100), rel=0.05)


def test_steps_that_are_not_chosen_have_no_share() -> None:
    lines = seen({(0, 0): 10}, {0: 1.0})
    assert lines.time_shares(np.zeros(100, bool), lambda one: one) == {}
    assert lines.time_shares(np.ones(3, bool), lambda one: one)[LINES[0]].samples == 3
