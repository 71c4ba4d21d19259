from __future__ import annotations

import random

import pytest

from tests.explanations import NOISE, explained, measured
from torchscale.features.compare.analysis.cell_why import Clarity
from torchscale.features.compare.analysis.explanation import ExplainedCell
from torchscale.features.compare.analysis.likely_cause import CauseBasis
from torchscale.features.compare.text.why import cause_sentences, why_headline
from torchscale.features.compare.text.why_rows import (
    OUTSIDE_LABELS,
    PART_LABELS,
    TimeUnit,
    clarity_text,
    listed_ranks,
    outside_rows,
    share_text,
    step_rows,
)
from torchscale.schema.node.environment import Versions
from torchscale.schema.run.step_parts import OutsidePart, StepPart


def slower_forward(**changes: object) -> ExplainedCell:
    return explained(measured(), measured({StepPart.FORWARD: 0.015}), **changes)


def test_printed_rows_sum_to_the_printed_step() -> None:
    """As do the printed differences: a reader adds them up."""
    for seed in range(200):
        drawn = random.Random(seed)
        phases = [{part: drawn.random() / 100 for part in PART_LABELS} for _ in range(2)]
        for taken in phases:
            del taken[StepPart.REST], taken[StepPart.SLOWER_RANKS], taken[StepPart.EXCHANGE]
        ranks = [tuple(drawn.random() / 100 for _ in range(2)) for _ in range(2)]
        cell = explained(measured(phases[0], ranks[0]), measured(phases[1], ranks[1]))
        unit, rows = step_rows(cell.why)
        *parts, total = [row for row in rows if not row.indent]
        for read in ("before", "after"):
            printed = [round(float(unit.text(getattr(row, read))) * 100) for row in parts]
            assert sum(printed) == round(float(unit.text(getattr(total, read))) * 100)
        changes = [round(float(unit.change(row.difference)) * 100) for row in parts]
        assert sum(changes) == round(float(unit.change(total.difference)) * 100)


@pytest.mark.parametrize(
    ("seconds", "unit"), [(2.0, "s"), (0.02, "ms"), (0.0002, "µs"), (1.0, "s"), (0.001, "ms")]
)
def test_times_have_the_unit_of_the_whole(seconds: float, unit: str) -> None:
    assert TimeUnit.of(seconds).name == unit


def test_what_rounds_to_zero_has_no_sign() -> None:
    unit = TimeUnit.of(0.02)
    assert unit.change(-0.001) == "0.00"
    assert unit.change(0.02) == "+0.02"
    assert unit.text(-0.0) == "0.00"


def test_the_headline_has_the_difference_with_its_interval() -> None:
    text = why_headline(slower_forward())
    assert "the mean step takes 5.00 ms longer (+12.5 %; 95 % interval " in text
    faster = why_headline(explained(measured({StepPart.FORWARD: 0.015}), measured()))
    assert "the mean step takes 5.00 ms less (-11.1 %; " in faster
    single = explained(measured(noise=NOISE[:1]), measured(noise=NOISE[:1]))
    assert why_headline(single).endswith("the mean step takes equally long (0.0 %).")


def test_ranks_stand_below_their_part_if_they_changed() -> None:
    _, rows = step_rows(slower_forward().why)
    assert not any(row.indent for row in rows)
    cell = explained(measured(), measured(ranks=(0.0005, 0.0055)))
    _, rows = step_rows(cell.why)
    labels = [row.label for row in rows]
    assert labels[labels.index("slower ranks") + 1] == "rank 1"
    assert [rank.name for rank in listed_ranks(cell.why)] == [1]


def test_what_is_outside_the_steps_is_in_seconds_and_sums() -> None:
    unit, rows = outside_rows(slower_forward().why)
    assert unit.name == "s"
    assert rows[-1].label == "all outside the steps"
    assert sum(row.before for row in rows[:-1]) == pytest.approx(rows[-1].before, abs=1e-9)
    assert outside_rows(explained(measured(outside_seconds=None), measured()).why)[1] == []


def test_each_clear_part_has_a_sentence_with_its_cause() -> None:
    newer = Versions(torchscale="0.1.0", python="3.12.1", torch="2.13.0")
    (sentence,) = cause_sentences(slower_forward(versions=newer))
    assert sentence.startswith(
        "Forward +5.00 ms. Likeliest cause: Python (3.11.7 → 3.12.1), the only recorded change"
    )


def test_abstentions_are_told() -> None:
    (nothing,) = cause_sentences(slower_forward())
    assert nothing.startswith("Forward +5.00 ms: clear, but no recorded difference explains this")
    newer = Versions(torchscale="0.1.0", python="3.12.1", torch="2.13.0", cuda="13.0")
    cell = slower_forward(versions=newer)
    assert cell.causes[0].basis is CauseBasis.SEVERAL
    (several,) = cause_sentences(cell)
    assert "2 candidates that changed together: Python and CUDA" in several


def test_why_nothing_is_clear() -> None:
    few = explained(measured(noise=NOISE[:2]), measured({StepPart.FORWARD: 0.02}))
    assert "2 and 4 launches, and 3 a side are needed" in cause_sentences(few)[0]
    assert cause_sentences(few)[0].endswith("Largest difference: forward +10.06 ms.")
    same = explained(measured(noise=NOISE[:1]), measured(noise=NOISE[:1]))
    assert cause_sentences(same)[0].endswith("All parts take equally long.")
    equal = explained(measured(), measured())
    assert cause_sentences(equal) == ["No part differs by more than the threshold."]
    wide = tuple(one * 20 for one in NOISE)
    noisy = explained(measured(noise=wide), measured(noise=wide))
    assert "could be noise" in cause_sentences(noisy)[0]
    hot = explained(
        measured(launch={"flags": ()}),
        measured({StepPart.COMMUNICATION: 0.03}, launch={"flags": ("throttled",)}),
    )
    assert "launches were throttled" in cause_sentences(hot)[0]
    assert (
        "pass --accept flags. Largest difference: exposed communication"
        in (cause_sentences(hot)[0])
    )


def test_a_row_says_why_it_is_unclear() -> None:
    few = explained(measured(noise=NOISE[:2]), measured())
    _, rows = step_rows(few.why)
    assert clarity_text(rows[0], few.why) == "unclear (launches)"
    cell = slower_forward()
    _, rows = step_rows(cell.why)
    assert clarity_text(rows[1], cell.why) == "clear"
    assert rows[1].clarity is Clarity.CLEAR
    assert share_text(rows[1]) == "+12.5 %"
    assert share_text(rows[0]) == "0.0 %"


def test_every_part_has_a_label() -> None:
    assert set(PART_LABELS) == set(StepPart)
    assert set(OUTSIDE_LABELS) == set(OutsidePart)
