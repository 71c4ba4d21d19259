"""What a program is called."""

from __future__ import annotations

import pytest

from torchscale.util.text import program_name


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
