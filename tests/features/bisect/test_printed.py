"""The last number that a program prints or writes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.features.bisect.printed import NoNumberError, PrintedNumber


def read(tmp_path: Path, text: str, number: PrintedNumber) -> float:
    log = tmp_path / "log"
    log.write_text(text)
    return number.read(log, None, ())


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("loss: 2.31", 2.31),
        ("loss=2.31", 2.31),
        ("Loss 2.31", 2.31),
        ("step 3, loss is 2.31.", 2.31),
        ("{'loss': 2.31, 'grad_norm': 1.0, 'epoch': 0.5}", 2.31),
        ("{'loss': '2.31', 'epoch': '1'}", 2.31),
        ('{"step": 4, "train_loss": -2.31e-3}', -2.31e-3),
        ("{'train_runtime': 4.2, 'train_loss': 2.31, 'epoch': 3.0}", 2.31),
        ("iter 0: loss 4.2854, time 3000ms, mfu -100.00%", 4.2854),
        ("step 0: train loss 4.28, val loss 4.31", 4.31),
        (" iteration 5 | lm loss: 1.037E+01 | loss scale: 1.0 | grad norm: 2.0 |", 10.37),
        ("\x1b[31mstep:  1  \x1b[32mloss:  8.0000  \x1b[33mmemory: 3.2GiB", 8.0),
        ("│      test_loss      │   0.25   │", 0.25),
        ("loss: tensor(2.31, grad_fn=<MeanBackward0>)", 2.31),
        ("loss = np.float32(2.31)", 2.31),
        ("loss: 0", 0.0),
        ("loss: 3.0\rloss: 2.0\nloss: 1.0\nloss_scale: 65536\nno loss of data", 1.0),
        ("loss: inf", math.inf),
        ("loss: -Infinity", -math.inf),
        ("loss 2.31s\nloss: 3\nloss 2.5x", 3.0),
        ("epoch loss: 2.31\ncomputing loss\n2024-05-01 12:00:09 INFO saved", 2.31),
        ("loss: 1,234.56", 1234.56),
        ("loss: 12,345,678", 12_345_678.0),
        ("loss: 2.31,0.5", 2.31),
        ("step 1, loss 2, lr 3", 2.0),
    ],
)
def test_the_last_loss_is_found(tmp_path: Path, text: str, loss: float) -> None:
    assert read(tmp_path, text, PrintedNumber()) == loss


@pytest.mark.parametrize("text", ["loss: nan", '{"loss": NaN}', "loss=tensor(nan)"])
def test_nan_is_a_number(tmp_path: Path, text: str) -> None:
    assert math.isnan(read(tmp_path, text, PrintedNumber()))


@pytest.mark.parametrize(
    "text",
    [
        *("", "lossless 3", "loss scale: 1.0", "loss: abc", "loss: nano", "gloss"),
        *("epoch,loss\n0,2.31", "step  lr  loss\n1  0.1  2.31", "loss:\n2.31", "loss: 2,31"),
    ],
)
def test_no_loss_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(NoNumberError, match="after a word that ends in loss"):
        read(tmp_path, text, PrintedNumber())


def test_any_pattern(tmp_path: Path) -> None:
    number = PrintedNumber("number", pattern=r"score (\S+)")
    assert read(tmp_path, "score 1\nscore 1,234.5", number) == 1234.5
    with pytest.raises(NoNumberError, match="'high', which is no number"):
        read(tmp_path, "score 1\nscore high", number)
    with pytest.raises(NoNumberError, match="finds"):
        read(tmp_path, "nothing", number)
    with pytest.raises(UsageError, match="no group"):
        PrintedNumber(pattern="score")


def test_a_key_of_the_last_line_of_json_that_has_it(tmp_path: Path) -> None:
    text = '{"eval": {"loss": 1}}\nepoch 2\n{"eval": {"loss": 0.5}}\n{"time": 3}\n{broken\n[1]\n'
    assert read(tmp_path, text, PrintedNumber("eval.loss", key="eval.loss")) == 0.5
    assert read(tmp_path, '{"eval.loss": 2}', PrintedNumber("x", key="eval.loss")) == 2
    with pytest.raises(NoNumberError, match="JSON object with other"):
        read(tmp_path, text, PrintedNumber("other", key="other"))
    with pytest.raises(NoNumberError, match="eval is dict, and no number"):
        read(tmp_path, text, PrintedNumber("eval", key="eval"))
    with pytest.raises(NoNumberError, match="done is bool"):
        read(tmp_path, '{"done": true}', PrintedNumber("done", key="done"))


@pytest.mark.parametrize(
    ("content", "key", "value"),
    [
        ('{"loss": 2.5}', "", 2.5),
        ('{\n "log_history": [\n  {"loss": 3},\n  {"loss": 2}\n ]\n}', "log_history.-1.loss", 2),
        ('{"loss": 3}\n{"loss": 2}\n', "loss", 2),
        ('{"loss": NaN}', "loss", None),
    ],
)
def test_a_file_of_json_or_lines(
    tmp_path: Path, content: str, key: str, value: float | None
) -> None:
    number = PrintedNumber(key or "loss", key=key, file=Path("out.json"))
    before = number.written(tmp_path)
    (tmp_path / "out.json").write_text(content)
    read = number.read(tmp_path / "log", tmp_path, before)
    assert math.isnan(read) if value is None else read == value


def test_a_file_that_the_launch_did_not_write_does_not_count(tmp_path: Path) -> None:
    number = PrintedNumber("loss", key="loss", file=Path("out.json"))
    with pytest.raises(NoNumberError, match=r"wrote no out\.json"):
        number.read(tmp_path / "log", tmp_path, number.written(tmp_path))
    (tmp_path / "out.json").write_text(json.dumps({"loss": 1}))
    before = number.written(tmp_path)
    with pytest.raises(NoNumberError, match="older than the launch"):
        number.read(tmp_path / "log", tmp_path, before)
    os.utime(tmp_path / "out.json", ns=(1, 1))
    assert number.read(tmp_path / "log", tmp_path, before) == 1


@pytest.mark.parametrize(
    ("content", "said"), [("{}", "has no loss"), ("[]", "has no loss"), ("x", "wrote no line")]
)
def test_a_file_without_the_number(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "out.json").write_text(content)
    with pytest.raises(NoNumberError, match=said):
        PrintedNumber("loss", key="loss", file=Path("out.json")).read(tmp_path, tmp_path, ())


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.json")
    with pytest.raises(NoNumberError, match="not a regular file"):
        PrintedNumber("loss", key="loss", file=Path("out.json")).read(tmp_path, tmp_path, ())


def test_null_is_no_number_and_no_reason_to_look_further_up(tmp_path: Path) -> None:
    text = '{"step": 9, "loss": 2.3}\n{"step": 10, "loss": null}\n'
    with pytest.raises(NoNumberError, match="loss is null"):
        read(tmp_path, text, PrintedNumber(key="loss"))
    text = '{"step": 9, "loss": 2.3}\n{"step": 10}\n'
    assert read(tmp_path, text, PrintedNumber(key="loss")) == 2.3
