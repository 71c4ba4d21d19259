"""Options and arguments as commands write them."""

from __future__ import annotations

import pytest

from torchscale.cli.parameters import argument, option


@pytest.mark.parametrize(
    ("spelling", "names", "value"),
    [
        ("--json", ("--json",), None),
        ("--output-dir -o DIR", ("--output-dir", "-o"), "DIR"),
        ("--live/--no-live", ("--live/--no-live",), None),
        ("--history FILE|DIR", ("--history",), "FILE|DIR"),
    ],
)
def test_a_spelling_names_the_option_and_its_value(
    spelling: str, names: tuple[str, ...], value: str | None
) -> None:
    made = option(spelling, "What it does.", min=2)
    # Of an annotation, typer takes the first of the names for the default until it reads it.
    found = (made.default, *(made.param_decls or ()))
    assert (found, made.metavar, made.help) == (names, value, "What it does.")
    assert made.min == 2


def test_an_argument_has_the_name_of_its_value() -> None:
    made = argument("[DIR ...]", "Where.", show_default=False)
    assert (made.metavar, made.help, made.show_default) == ("[DIR ...]", "Where.", False)
