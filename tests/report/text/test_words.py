"""Words by number, lists that name the first, and ranges."""

from __future__ import annotations

import pytest

from torchscale.report.text.words import (
    and_others,
    by_count,
    capped,
    format_range,
    from_to,
    in_brackets,
    listed,
    plural,
)


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [
        (1, "cell", "1 cell"),
        (0, "cell", "0 cells"),
        (2, "launch", "2 launches"),
        (2, "series", "2 series"),
        (1200, "bias", "1,200 biases"),
    ],
)
def test_a_noun_follows_its_count(count: int, noun: str, expected: str) -> None:
    assert plural(count, noun) == expected


def test_a_verb_follows_its_count() -> None:
    assert [by_count(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]


def test_the_rest_of_a_list_is_counted() -> None:
    labels = ["a", "b", "c", "d"]
    assert capped(labels, 4) == labels
    assert capped(labels, 3) == ["a", "b", "c", "1 more"]
    assert capped(["a"] * 1500, 1, "{:,} more") == ["a", "1,499 more"]
    assert [and_others(count) for count in (0, 1, 2)] == [
        "",
        " and 1 other cell",
        " and 2 other cells",
    ]


def test_items_are_joined() -> None:
    assert [listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_a_range_of_one_text_is_that_text() -> None:
    assert from_to("1 ms", "1 ms") == "1 ms"
    assert from_to("1 ms", "2 ms") == "1 ms to 2 ms"
    assert format_range([3.0, 1.0], "{:g}".format, "at ") == "at 1 to 3"
    assert format_range([], "{:g}".format, "at ") == ""


def test_brackets_stand_only_around_a_text() -> None:
    assert in_brackets("contended") == " (contended)"
    assert in_brackets("") == ""
