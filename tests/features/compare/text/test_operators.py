from __future__ import annotations

import random

from tests.features.compare.analysis.test_operators import AFTER, BEFORE, recorded
from torchscale.features.compare.analysis.operators import compare_recorded
from torchscale.features.compare.text.operators import (
    operator_rows,
    operator_share,
    recording_headline,
)


def test_printed_rows_sum_to_the_printed_step() -> None:
    for seed in range(100):
        drawn = random.Random(seed)
        sides = [
            recorded(
                0.2 + drawn.random(),
                {f"op{drawn.randrange(40)}": (1.0, drawn.random() / 200) for _ in range(30)},
                drawn.random() / 10,
            )
            for _ in range(2)
        ]
        unit, rows = operator_rows(compare_recorded(*sides), limit=5)
        *parts, total = rows
        for read in ("before", "after", "difference"):
            printed = [round(getattr(row, read) * 10**unit.digits) for row in parts]
            assert sum(printed) == round(getattr(total, read) * 10**unit.digits)


def test_operators_beyond_the_limit_are_one_row() -> None:
    _, rows = operator_rows(compare_recorded(BEFORE, AFTER), limit=2)
    assert [row.label for row in rows] == [
        "mm",
        "sqrt",
        "4 other operators",
        "exposed all_reduce 1.00 MiB",
        "rest: gaps, less overlap",
        "recorded step",
    ]
    assert [row.calls for row in rows[:2]] == ["4", "2 | 0"]
    assert operator_share(rows[0]) == "+10.0 %"
    _, rows = operator_rows(compare_recorded(BEFORE, AFTER), limit=10)
    assert not any("other" in row.label for row in rows)


def test_autograds_names_are_short() -> None:
    sides = [recorded(0.1, {"autograd::engine::evaluate_function: MmBackward0": (1, 0.01)})] * 2
    _, rows = operator_rows(compare_recorded(*sides), limit=1)
    assert rows[0].label == "MmBackward0"


def test_the_headline_has_both_counts_of_steps() -> None:
    text = recording_headline("b against a", compare_recorded(BEFORE, AFTER))
    assert text == (
        "b against a: the recorded step takes 20.00 ms longer (+20.0 %; 10 and 10 steps)."
    )
    assert "20.00 ms less (-16.7 %" in recording_headline("", compare_recorded(AFTER, BEFORE))
