"""Fields of another type than expected."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from torchscale.util.lenient import counted, read_fields


class Thing(msgspec.Struct):
    number: int = -1
    text: str = "none"
    maybe: int | None = 7
    sizes: list[int] = []
    raw: msgspec.Raw = msgspec.field(name="Raw Value", default_factory=msgspec.Raw)


@pytest.mark.parametrize(
    ("content", "read", "unread"),
    [
        ({"number": " 12", "text": 5, "maybe": None}, (12, "5", None, []), {}),
        ({"number": None, "text": None}, (-1, "none", 7, []), {}),
        ({"number": "x", "sizes": "1"}, (-1, "none", 7, []), {"a.number": 1, "a.sizes": 1}),
        ({"number": True, "text": [1]}, (-1, "none", 7, []), {"a.number": 1, "a.text": 1}),
        ({"other": object(), "sizes": ["3"]}, (-1, "none", 7, [3]), {}),
    ],
)
def test_what_can_be_read_is(
    content: dict[str, Any], read: tuple[Any, ...], unread: dict[str, int]
) -> None:
    counts = Counter[str]()
    made = read_fields(Thing, content, counts, within="a.")
    assert (made.number, made.text, made.maybe, made.sizes) == read
    assert counts == unread


def test_values_that_are_read_later_stay_as_they_are() -> None:
    made = read_fields(Thing, {"Raw Value": {"a": [1]}}, Counter())
    assert bytes(made.raw) == b'{"a":[1]}'


@pytest.mark.parametrize("value", ["x", None, 1.5])
def test_strict_fields_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"a\.number: Expected `int`"):
        read_fields(Thing, {"number": value}, Counter(), within="a.", strict=("number",))
    assert read_fields(Thing, {}, Counter(), strict=("number",)).number == -1


def test_counts_are_listed_up_to_a_bound() -> None:
    assert counted(Counter({"a": 1, "b": 1200})) == "b (1,200), a (1)"
    assert counted(Counter({str(number): 1 for number in range(50)})).endswith("(1) …")
