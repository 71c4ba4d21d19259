from __future__ import annotations

import pytest

from tests.factories import cells
from tests.features.compare.analysis.test_compare import STEADY, result, scaled, side
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.sections.document import ComparisonReport, comparison_document
from torchscale.features.compare.sections.ranking import best_sentence, ranked_sides, ranking_table

CELL, OTHER = cells()
NAMES = ("a100", "h100", "b200", "none")
PRICES = (2.0, 3.0, 10.0, 1.0)
REFERENCE = side(result(CELL), name="a100")
SIDES = (
    side(result(CELL, scaled(STEADY, 2.0)), name="h100"),
    side(result(CELL, scaled(STEADY, 4.0)), name="b200"),
    side(result(OTHER), name="none"),
)
PAIRS = tuple(
    compare(REFERENCE, one, prices=(PRICES[0], price))
    for one, price in zip(SIDES, PRICES[1:], strict=True)
)


def test_sides_are_in_the_order_of_what_a_dollar_buys() -> None:
    ranked = ranked_sides(PAIRS, NAMES, PRICES)
    assert [one.name for one in ranked] == ["h100", "a100", "b200", "none"]
    assert [one.ratio.value for one in ranked[:3]] == pytest.approx([2 * 2 / 3, 1.0, 4 * 2 / 10])
    assert best_sentence(ranked) == "Most samples per dollar: h100."
    rows = [[value.text for value in row] for row in ranking_table(ranked, "a100").rows]
    assert rows[0][:5] == ["h100", "3.00", "1", "+100.0 %", "+33.3 %"]
    assert rows[0][-1] == "better"
    assert rows[1][3:5] == ["reference"] * 2
    assert rows[2][-1] == "worse"
    assert rows[3][2:] == ["–"] * 6


def test_what_one_launch_of_each_shows_is_said_to_be_unclear() -> None:
    once = [
        side(result(CELL, [rate]), name=name) for rate, name in ((100.0, "a100"), (200.0, "h100"))
    ]
    pair = compare(*once, prices=(2.0, 3.0))
    report = ComparisonReport((pair,), (), ("a100", "h100"), prices=(2.0, 3.0))
    assert (
        best_sentence(report.ranking)
        == "Most samples per dollar as measured, which is unclear: h100."
    )
    document = comparison_document(report)
    assert document.verdict[0] == best_sentence(report.ranking)
    assert document.sections[0].anchor == "ranking"


def test_the_reference_is_the_best_where_the_next_is_worse() -> None:
    pair = compare(REFERENCE, SIDES[1], prices=(2.0, 10.0))
    assert (
        best_sentence(ranked_sides([pair], NAMES[::2], (2.0, 10.0)))
        == "Most samples per dollar: a100."
    )


def test_without_prices_there_is_no_ranking() -> None:
    assert ranked_sides(PAIRS, NAMES, ()) == []
    assert best_sentence([]) == ""
    assert all(
        section.anchor != "ranking"
        for section in comparison_document(ComparisonReport(PAIRS, (), NAMES)).sections
    )
