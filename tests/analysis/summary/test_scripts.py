"""Scripts of one name: what tells them apart."""

from __future__ import annotations

from tests.factories import cells
from torchscale.analysis.summary.scripts import differing_arguments, named_arguments
from torchscale.schema.cells.training import TrainingCell

LONG = "--data /shared/storage/sets/of/many/pictures/"


def apart(*texts: str) -> list[str]:
    found = scripts(*texts)
    named = differing_arguments(found)
    return [named.get(cell.id, "") for cell in found]


def scripts(*texts: str) -> list[TrainingCell]:
    return cells(models=[{"script": text} for text in texts], gpu_counts=[1])


def test_only_arguments_that_differ_tell_scripts_apart() -> None:
    assert apart("train.py --lr 0.1 --amp x") == [""]
    assert apart("train.py", "train.py x", "other.py --lr 1") == ["", "x", ""]
    assert apart(
        "train.py --lr 0.1 --amp --b {batch_size}", "train.py --lr 1 --b {batch_size}"
    ) == [
        "--lr 0.1 --amp",
        "--lr 1",
    ]
    assert apart("a/train.py --x", "b/train.py --x") == ["a/train.py", "b/train.py"]
    assert apart("train.py a b", "train.py b a") == ["a b", "b a"]


def test_long_arguments_are_cut_where_they_stay_different() -> None:
    assert apart(f"train.py {LONG}a", f"train.py {LONG}b") == [
        f"…{LONG[-38:]}a",
        f"…{LONG[-38:]}b",
    ]
    assert apart(f"train.py 1 {LONG}a", f"train.py 2 {LONG}b")[0] == f"1 {LONG[:37]}…"
    middle = [f"train.py {LONG}{number}{'/x' * 30}" for number in range(2)]
    assert apart(*middle) == [text.removeprefix("train.py ") for text in middle]


def test_words_of_a_command_line_are_named_by_what_they_are() -> None:
    text = "torchrun --nproc-per-node 2 a.py --set lr=1 --set wd=2 --fast --bucket=25 data"
    assert named_arguments(text) == {
        "argument 1": "torchrun",
        "argument --nproc-per-node": "2",
        "argument 2": "a.py",
        "argument --set": "lr=1, wd=2",
        "argument --fast": "given",
        "argument --bucket": "25",
        "argument 3": "data",
    }
