"""``compare -- 'COMMAND A' 'COMMAND B'`` through the whole program."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.program import torchscale

TRAIN = """
import sys, time, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    weight.sum().backward()
    time.sleep(float(sys.argv[1]))
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-- true", "one command has nothing to be compared with"),
        ("-- 'a' 'b \"c'", "no command line"),
        ("--over mb=1,2 -- train", "the command has no {mb}"),
        ("--match model -- a b", "--match is for results"),
        ("--save x -- a b", "--save is for results"),
        ("--budget 3m a b", "--budget is for commands after --"),
        ("--dry-run a b", "--dry-run is for commands after --"),
        ("--launch-seconds x -- a b", "--launch-seconds"),
    ],
)
def test_what_is_no_comparison_of_commands(tmp_path: Path, line: str, why: str) -> None:
    done = torchscale(tmp_path, "compare", *shlex.split(line))
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_dry_run_shows_the_commands_and_launches_nothing(tmp_path: Path) -> None:
    line = ["--over", "mb=10,25", "--dry-run", "--", "train", "--bucket", "{mb}"]
    done = torchscale(tmp_path, "compare", *line)
    assert done.returncode == 0, done.stderr
    assert "mb=25: train --bucket 25" in done.stderr
    assert "3 to 20 launches of each" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_slower_command_fails_and_its_launches_are_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    words = [sys.executable, "train.py", "{pause}"]
    options = ["--over", "pause=0.01,0.1", "--launch-seconds", "0.3", "--output-dir", "kept"]
    options += ["--max-launches", "5", "--accept", "flags"]  # others may use these cores
    done = torchscale(tmp_path, "compare", *options, "--json", "--", *words)
    assert done.returncode == 1, done.stderr
    (pair,) = json.loads(done.stdout)["pairs"]
    assert [pair["reference"], pair["other"]] == ["pause=0.01", "pause=0.1"]
    speed = next(one for one in pair["cells"][0]["changes"] if one["metric"] == "steps")
    assert speed["verdict"] == "worse"
    assert min(speed["launches"]) >= 3
    again = torchscale(tmp_path, "compare", "--why", "kept/pause=0.01", "kept/pause=0.1")
    assert "Parts of the mean step" in again.stdout
