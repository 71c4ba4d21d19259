"""Commands to compare, as they are typed."""

from __future__ import annotations

import pytest

from torchscale.errors import UsageError
from torchscale.features.compare.commands.sides import folder_of, parse_sides


def test_each_quoted_command_is_a_side_and_equal_ones_may_be_compared() -> None:
    sides = parse_sides(["python a.py --name 'x y'", "python b.py", "python b.py"], None)
    assert [side.name for side in sides] == ["A", "B", "C"]
    assert sides[0].command == ("python", "a.py", "--name", "x y")
    assert sides[1].command == sides[2].command


def test_a_value_takes_its_place_wherever_the_template_names_it() -> None:
    words = ["train", "{mb}", "--out=run-{mb}", '{"other": 1}']
    sides = parse_sides(words, "mb=10,25")
    assert [side.name for side in sides] == ["mb=10", "mb=25"]
    assert sides[1].command == ("train", "25", "--out=run-25", '{"other": 1}')
    assert parse_sides(["train {mb}"], "mb=1,2")[0].command == ("train", "1"), "quoted as one"


def test_a_value_is_one_word_whatever_it_holds_and_no_path_of_a_folder() -> None:
    sides = parse_sides(["train {data}"], "data=/a b/../c,d; rm x")
    assert [side.name for side in sides] == ["A", "B"]
    assert sides[0].command == ("train", "/a b/../c")
    assert sides[1].command == ("train", "d; rm x")


def test_a_secret_is_not_shown() -> None:
    (side, _) = parse_sides(["train --token hunter2secret", "train"], None)
    assert "hunter2secret" not in side.shown
    assert side.command[-1] == "hunter2secret"


@pytest.mark.parametrize(
    ("words", "over", "why"),
    [
        (["python a.py"], None, "nothing to be compared with"),
        (["python", "-m", "a"], None, "-m after -- is no command"),
        (["python a.py", "python 'b.py"], None, "no command line"),
        (["python a.py", " "], None, "empty"),
        (["python"] * 27, None, "27 commands are too many"),
        (["train", "{mb}"], "mb=1", "at least two different values"),
        (["train", "{mb}"], "mb=1,1", "at least two different values"),
        (["train", "{mb}"], "mb=1,", "at least two different values"),
        (["train", "{mb}"], "1,2", "at least two different values"),
        (["train", "{nb}"], "mb=1,2", r"the command has no \{mb\}"),
    ],
)
def test_what_is_no_comparison(words: list[str], over: str | None, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_sides(words, over)


def test_another_command_has_another_folder() -> None:
    one, other = parse_sides(["a", "b"], None), parse_sides(["a", "c"], None)
    assert folder_of(one, 5.0) == folder_of(one, 5.0)
    assert len({folder_of(one, 5.0), folder_of(other, 5.0), folder_of(one, 2.0)}) == 3
