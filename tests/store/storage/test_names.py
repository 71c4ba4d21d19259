"""Keys of objects as names of files."""

from __future__ import annotations

import pytest

from torchscale.store.storage.names import is_safe, relative_key, without_collisions


@pytest.mark.parametrize(
    "name",
    [
        "../up",
        "a/../../up",
        "a/..",
        ".",
        "a/./b",
        "/etc/passwd",
        "a//b",
        "",
        "a/",
        "a\x00b",
        "a\nb",
        "a\x1b[31mb",
        "a\x9bb",
        "a\\b",
        "a" * 256,
        "a/" * 600 + "b",
        "\ud800",
    ],
)
def test_a_hostile_key_is_no_file(name: str) -> None:
    assert not is_safe(name)


@pytest.mark.parametrize("name", ["a", "cells/x-n1/launch-0/record.json", "..a", "a b", "é", "..."])
def test_an_ordinary_key_is_a_file(name: str) -> None:
    assert is_safe(name)


def test_the_key_within_its_folder() -> None:
    assert relative_key("b/run", "b/run/a/b") == "a/b"
    assert relative_key("b/run", "b/run//etc") == "/etc", "which is not safe"
    assert relative_key("b/run", "b/run/") is None
    assert relative_key("b/run", "b/run/cells/") is None, "stands for a folder"
    elsewhere = relative_key("b/run", "b/run-2/a")
    assert elsewhere == "b/run-2/a"


def test_of_two_keys_that_cannot_be_together_the_folder_is_kept() -> None:
    files, refused = without_collisions(["a", "a/b", "c", "d/e/f", "d/e"])
    assert files == ["a/b", "c", "d/e/f"]
    assert refused == ["a", "d/e"]
