"""Every key is placed or listed with a reason."""

from __future__ import annotations

import pytest

from torchscale.config.yaml_reader import Data
from torchscale.features.imports.worksheet import Worksheet, as_list, is_on, with_options


def test_what_is_never_asked_for_is_left_out() -> None:
    sheet = Worksheet("suite", {"a": {"b": 1, "c": {}}, "d": None, "e": 2})
    sheet.move("e", "training.seed")
    result = sheet.done()
    assert result.data == {"training": {"seed": 2}}
    assert result.renamed == {"e": "training.seed"}
    assert result.left_out == {"a.b": "has no place here", "a.c": "is empty", "d": "is empty"}


def test_a_key_below_one_that_is_left_out_is_not_listed_again() -> None:
    sheet = Worksheet("suite", {"a": {"b": 1, "c": 2}})
    sheet.leave("a", "of its own")
    assert sheet.done().left_out == {"a": "of its own"}


def test_a_switch_that_changes_nothing_is_named() -> None:
    sheet = Worksheet("suite", {"fast": False, "seed": 1, "a": {"b": {"c": {"enable": True}}}})
    assert not is_on(sheet.take("fast"))
    sheet.take("a.b.c.enable")
    sheet.move("seed", "training.seed")
    assert sheet.done().notes == ["without effect, or the same here: enable, fast"]


def test_two_values_for_one_place_keep_the_first() -> None:
    sheet = Worksheet("suite", {"a": 1, "b": 2, "c": 1})
    for key in ("a", "b", "c"):
        sheet.move(key, "training.seed")
    result = sheet.done()
    assert result.data == {"training": {"seed": 1}}
    assert result.left_out == {"b": "training.seed has a value already (1)"}


def test_a_default_is_placed_without_a_key_of_its_own() -> None:
    sheet = Worksheet("suite", {"x": {"steps": 3}})
    sheet.place("benchmark.warmup_steps", 5, "x.warmup")
    sheet.place("benchmark.max_steps", 3, "steps")
    assert sheet.result.renamed == {"steps": "benchmark.max_steps"}


def test_an_axis_takes_each_value_once() -> None:
    sheet = Worksheet("suite", {})
    sheet.join("models", ["a", {"name": "b"}], "first")
    sheet.join("models", [{"name": "b"}, "c"], "second")
    assert sheet.value("models") == ["a", {"name": "b"}, "c"]


def test_keys_that_other_tools_use_find_their_places() -> None:
    sheet = Worksheet("", {"gpus": 2, "training": {"lr": 0.1}, "coolant": "water"})
    result = sheet.done_as_usual()
    assert result.data == {"gpu_counts": 2, "training": {"learning_rate": 0.1}}
    assert result.left_out == {"coolant": "unknown key"}


@pytest.mark.parametrize("value", [4, "4", 4.0])
def test_whole_numbers(value: Data) -> None:
    assert Worksheet("", {"a": value}).take_whole("a") == 4


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "four", "auto", [4], 10**10, "9" * 5000])
def test_no_whole_numbers_are_listed(value: Data) -> None:
    sheet = Worksheet("", {"a": value})
    assert sheet.take_whole("a") is None
    assert "a" in sheet.done().left_out


def test_switches_lists_and_options() -> None:
    assert [is_on(value) for value in (True, "yes", "on", "no", False, 1)] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert as_list("a, b") == ["a", "b"]
    assert as_list(None) == []
    assert as_list(3) == [3]
    assert with_options("fsdp", {}) == "fsdp"
    assert with_options("fsdp", {"offload": True}) == {"name": "fsdp", "offload": True}
