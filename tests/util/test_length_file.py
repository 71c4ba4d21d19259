from __future__ import annotations

import pytest

from torchscale.util.length_file import parse_lengths


def test_a_line_is_a_length_or_a_length_and_how_often_it_occurs() -> None:
    text = "# tokens, documents\n128\n512, 3\n\n128 2  # again\n7\t1\n"
    assert parse_lengths(text) == {128: 3, 512: 3, 7: 1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it lists no lengths"),
        ("# none\n\n", "it lists no lengths"),
        ("12\nmany", "line 2: 'many' is not a length in tokens"),
        ("12 3 4", "line 1: '12 3 4' is not a length in tokens"),
        ("-5", "line 1: '-5' is not a length"),
        ("1.5", "line 1: '1.5' is not a length"),
        ("²", "line 1: '²' is not a length"),
        ("1", "line 1: length 1 is not from 2 to 100,000,000"),
        ("9" * 5000, "line 1: length 99999999999999999999 is not from 2"),
        ("12 0", "line 1: 0 documents are not from 1"),
    ],
)
def test_another_line_is_an_error_that_names_it(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="^" + told.replace("(", r"\(")):
        parse_lengths(text)


def test_a_file_of_very_many_lengths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchscale.util.length_file.MAX_LENGTHS", 3)
    assert len(parse_lengths("2\n3\n4\n4")) == 3
    with pytest.raises(ValueError, match="line 4: more than 3 different lengths"):
        parse_lengths("2\n3\n4\n5")
