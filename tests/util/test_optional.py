from __future__ import annotations

from torchscale.util.optional import complete, optional, sole


def test_a_function_of_a_missing_value_is_missing() -> None:
    assert optional(abs, -3) == 3
    assert optional(len, "") == 0
    assert optional(abs, None) is None


def test_one_missing_value_makes_all_missing() -> None:
    assert complete([0, 1]) == [0, 1]
    assert complete([]) == []
    assert complete([0, None]) is None


def test_a_sole_value_is_neither_of_several_nor_of_none() -> None:
    assert sole({0}) == 0
    assert sole({0, 1}) is None
    assert sole(set[int]()) is None
