"""Anchors, aliases and merge keys of other tools' YAML: written out, within bounds; refused in a
config of this tool."""

from __future__ import annotations

import pytest

from torchscale.config.yaml_reader import Data, read_yaml
from torchscale.errors import ConfigError


def written_out(text: str) -> Data:
    return read_yaml(text, "foreign.yaml", anchors=True).data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &x [1, 2]\nb: *x\n", {"a": [1, 2], "b": [1, 2]}),
        ("a: &x {p: 1}\nb: {<<: *x, q: 2}\n", {"a": {"p": 1}, "b": {"q": 2, "p": 1}}),
        ("a: &x {p: 1}\nb: {<<: *x, p: 2}\n", {"a": {"p": 1}, "b": {"p": 2}}),
        (
            "a: &x {p: 1}\nb: &y {p: 2, q: 3}\nc: {<<: [*x, *y]}\n",
            {"a": {"p": 1}, "b": {"p": 2, "q": 3}, "c": {"p": 1, "q": 3}},
        ),
        (
            "a: &x {p: 1}\nb: &y {<<: *x, q: 2}\nc: {<<: *y}\n",
            {"a": {"p": 1}, "b": {"q": 2, "p": 1}, "c": {"q": 2, "p": 1}},
        ),
        ('a: {"<<": 1}\n', {"a": {"<<": 1}}),
    ],
)
def test_what_an_alias_names_stands_in_its_place(text: str, expected: Data) -> None:
    assert written_out(text) == expected


def bomb(kind: str) -> str:
    """Ten aliases of ten aliases of …: a thousand million values of a few lines."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, 10):
        names = ", ".join([f"*a{level - 1}"] * 10)
        content = f"[{names}]" if kind == "list" else f"{{<<: [{names}]}}"
        lines.append(f"a{level}: &a{level} {content}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["list", "merge"])
def test_aliases_that_stand_for_too_much_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"stand for more than 20,000 keys and values"):
        written_out(bomb(kind))


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: &a {b: {<<: *a}}\n", "a: &a {<<: *a}\n"])
def test_an_alias_within_its_own_anchor_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"foreign.yaml:1: its aliases are nested more than 20"):
        written_out(text)


def test_a_merge_of_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"<< expects a mapping"):
        written_out("a: {<<: 3}\n")


@pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "a: {<<: {p: 1}}\n"])
def test_a_config_of_this_tool_has_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not supported"):
        read_yaml(text, "own.yaml")
