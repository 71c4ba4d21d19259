from __future__ import annotations

import pytest

from torchscale.catalog.models import OptionValue, find_model, model_title


@pytest.mark.parametrize(
    ("name", "changed", "title"),
    [
        ("encdec", {}, "encoder-decoder 3.5M"),
        ("encdec", {"d_model": 256, "nhead": 8}, "encoder-decoder (d_model=256, nhead=8)"),
        ("llama-1b", {"sequence_length": 512}, "Llama 3.2 1B (sequence_length=512)"),
        ("net:build", {"bad": 1}, "net:build (bad=1)"),
        ("net:build", {}, "net:build"),
    ],
)
def test_a_title_names_the_options_that_differ(name: str, changed: dict[str, OptionValue], title: str) -> None:
    facts = find_model(name)
    defaults = {} if facts is None else facts.options
    assert model_title(name, {**defaults, **changed}) == title
    assert model_title(name) == (name if facts is None else facts.title)
