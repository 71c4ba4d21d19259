"""Options of a config that hold secrets, and those that only have names like them."""

from __future__ import annotations

import pytest

from tests.factories import experiment, machine, trained
from torchscale.config.secrets import hide_secrets
from torchscale.plan.expand import make_plan
from torchscale.util import redaction
from torchscale.util.redaction import redact_text


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_noted", set())


def test_cells_are_told_apart_by_words_under_suspicious_names() -> None:
    mixers = ("attention", "pooling")
    config = hide_secrets(
        experiment(
            models=[{"name": "net:build", "token_mixer": mixer} for mixer in mixers], gpu_counts=[1]
        )
    )
    assert not config.hidden
    cells = [trained(entry) for entry in make_plan(config, machine(cores=16)).cells]
    assert [cell.model_options["token_mixer"] for cell in cells] == list(mixers)
    assert redact_text("scaled_dot_product_attention") == "scaled_dot_product_attention"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("run_token", "attention", "in attention_base"),
        ("api_token", "attention", "in <redacted>_base"),
        ("password", "attention", "in <redacted>_base"),
        ("api_token", "c0rrect-h0rse", "in <redacted>_base"),
    ],
)
def test_a_secret_is_kept_apart_and_looked_for_unless_it_is_a_word(
    name: str, value: str, shown: str
) -> None:
    config = hide_secrets(experiment(models=[{"name": "net:build", name: value}], gpu_counts=[1]))
    assert dict(config.hidden) == {"<redacted>": value}
    assert redact_text(f"in {value}_base") == shown
