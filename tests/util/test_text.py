"""What a program is called, and text that is safe to print."""

from __future__ import annotations

import json

import pytest

from torchscale.util.text import agreeing, escape_json, program_name, ranges, ranks_label


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["torchrun", "--nproc-per-node", "2", "src/train.py", "--lr", "1"], "train.py"),
        (["/usr/bin/python", "-m", "package.train"], "python"),
        (["train.py", "other.py"], "train.py"),
        (["bin/"], "bin/"),
    ],
)
def test_a_program_is_called_by_its_script(command: list[str], name: str) -> None:
    assert program_name(command) == name


def test_numbers_in_a_row_are_a_range() -> None:
    assert ranges([3, 0, 1, 2, 8]) == "0-3, 8"
    assert ranges([]) == ""


UNSEEN = "\x7f\x85\x9b\u00ad\u061c\u200b\u200e\u2028\u2029\u202e\u2066\u3164\ufeff\U000e0041"


@pytest.mark.parametrize("char", UNSEEN, ids=lambda char: f"U+{ord(char):04X}")
def test_json_has_escapes_for_what_steers_or_is_not_seen(char: str) -> None:
    text = json.dumps({f"a{char}": f"é – 数 {char}"}, ensure_ascii=False)
    shown = escape_json(text)
    assert char not in shown
    assert "é – 数" in shown
    assert json.loads(shown) == json.loads(text)
    assert escape_json(shown) == shown


def test_ranks_in_words() -> None:
    assert ranks_label(()) == "no rank"
    assert ranks_label((3,)) == "rank 3"
    assert ranks_label((4, 0, 1)) == "ranks 0, 1 and 4"
    assert ranks_label((0, 2, 3, 4, 5, 9)) == "ranks 0, 2-5 and 9"
    assert agreeing((3,), "is", "are") == "is"
    assert agreeing((3, 4), "is", "are") == "are"
