from __future__ import annotations

import pytest

from torchscale.catalog.model_facts import OptionValue
from torchscale.catalog.model_options import model_title
from torchscale.catalog.models import find_model


@pytest.mark.parametrize(
    ("name", "changed", "title"),
    [
        ("encdec", {}, "encoder-decoder 3.5M"),
        ("encdec", {"d_model": 256, "nhead": 8}, "encoder-decoder (d_model=256, nhead=8)"),
        ("llama-1b", {"sequence_length": 512}, "Llama 3.2 1B (sequence_length=512)"),
        ("net:build", {"bad": 1}, "net:build (bad=1)"),
        ("net:build", {}, "net:build"),
        ("decoder", {"d_model": 256, "num_layers": 2, "num_heads": 4}, "decoder dm256 l2 h4"),
        (
            "net:build",
            {"first_width": 1024, "dropout": False, "act": "relu"},
            "net:build fw1024 d=False a=relu",
        ),
    ],
)
def test_a_title_names_the_options_that_differ(
    name: str, changed: dict[str, OptionValue], title: str
) -> None:
    facts = find_model(name)
    defaults = {} if facts is None else facts.options
    assert model_title(name, {**defaults, **changed}) == title
    assert model_title(name) == (name if facts is None else facts.title)


def test_variants_with_many_options_have_short_names_that_differ() -> None:
    options: dict[str, OptionValue] = {f"option_number_{letter}": 1_000_000 for letter in "abcdef"}
    first = model_title("net:build", options)
    second = model_title("net:build", {**options, "option_number_a": 2_000_000})
    assert first != second
    assert max(map(len, (first, second))) == len("net:build #1234")
    assert model_title("net:build", options) == first


def test_options_whose_initials_are_the_same_are_not_abbreviated_to_them() -> None:
    title = model_title("net:build", {"hidden_size": 1024, "head_sizes": 1024, "x": 100_000})
    assert "#" in title
