"""What a program is called."""

from __future__ import annotations

import pytest

from torchscale.util.text import program_name, ranges


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
