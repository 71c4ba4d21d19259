"""Names of the sides of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.compare.analysis.test_compare import side
from torchscale.features.compare.inputs import Side
from torchscale.features.compare.sides import with_distinct_names


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["a/one", "a/two"], ["one", "two"]),
        (["a/demo", "b/demo"], ["a/demo", "b/demo"]),
        (["a/demo", "b/demo", "b/other"], ["a/demo", "b/demo", "other"]),
        (["a/demo", "a/demo"], ["demo", "demo (2)"]),
        (["a/demo", "./a/../a/demo/"], ["demo", "demo (2)"]),
        (["demo", "x", "demo", "demo"], ["demo", "x", "demo (2)", "demo (3)"]),
        (["a/demo", "b/demo", "a/demo"], ["a/demo", "b/demo", "a/demo (2)"]),
    ],
)
def test_sides_have_their_own_names_and_others_where_these_are_the_same(
    sources: list[str], names: list[str]
) -> None:
    sides = [Side(source, side(name=Path(source).name)) for source in sources]
    named = with_distinct_names(sides)
    assert [one.results.name for one in named] == names
    assert [one.source for one in named] == sources
