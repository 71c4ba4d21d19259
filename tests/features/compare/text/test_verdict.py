"""The result of a comparison in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.factories import cells
from tests.features.compare.analysis.test_bounds import HALF, QUIET, launches
from tests.features.compare.analysis.test_compare import STEADY, result, scaled, side
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.text.verdict import format_headline, pair_verdict
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell

CELL, *OTHERS = cells(batch_sizes=[8, 16])
NEAR = (100.0, 98.5, 101.5)
"""Launches that scatter by one and a half percent."""


def text_of(before: ResultCell, after: ResultCell) -> str:
    return " ".join(pair_verdict(compare(side(before, name="a"), side(after, name="b")), ()))


def by_steps(rates: Sequence[float]) -> ResultCell:
    """Of a script, whose samples are not known."""
    figures = [LaunchFigures(values={MetricKey(metric=Metric.STEPS): rate}) for rate in rates]
    return result(CELL, launches=tuple(figures))


@pytest.mark.parametrize("cell", [by_steps, lambda rates: result(CELL, rates)])
@pytest.mark.parametrize(("share", "word"), [(0.5, "slower"), (2.0, "faster")])
def test_less_speed_is_slower_in_steps_as_in_samples(
    cell: Callable[[Sequence[float]], ResultCell], share: float, word: str
) -> None:
    pair = compare(side(cell(STEADY), name="a"), side(cell(scaled(STEADY, share)), name="b"))
    assert format_headline(pair, ()).startswith(f"b is {word} than a: ")


def test_who_was_disturbed_is_named_and_so_is_what_stays_unknown() -> None:
    one = text_of(QUIET, launches(scaled(STEADY, 0.5), HALF))
    assert one.startswith("Unclear, because b was contended: b against a: ")
    assert (
        "All 3 launches of b were contended (other processes took up to 50 % of the cores)" in one
    )
    wide = [(0.0, 0.8)] * 3
    both = text_of(launches(STEADY, HALF), launches(scaled(STEADY, 0.98), wide))
    assert "because both sides were contended" in both
    sure = text_of(launches(STEADY, [(0.0, 0.6)] * 3), launches(scaled(STEADY, 0.2), [None] * 3))
    assert sure.startswith("b is slower than a; how much is unclear: ")


def test_a_change_that_one_of_many_cells_shows_by_chance_says_so() -> None:
    """Alone it is beyond its noise; among eight it is not."""
    after = [result(CELL, scaled(NEAR, 1.05)), *(result(cell, NEAR) for cell in OTHERS)]
    before = [result(cell, NEAR) for cell in (CELL, *OTHERS)]
    said = " ".join(pair_verdict(compare(side(*before), side(*after)), ()))
    count = len(before)
    assert f"1 differs by more than its own noise, as one of {count} may by chance" in said
    small = text_of(result(CELL), result(CELL, scaled(STEADY, 1.019)))
    assert "by chance" not in small, "it is beyond its noise, and below the threshold"
