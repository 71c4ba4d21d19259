"""What a rank gets in place of the texts that stand for secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from torchscale.config.secrets import HIDDEN_VARIABLE
from torchscale.util import redaction
from torchscale.util.redaction import redact_text
from torchscale.worker import secrets


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_noted", set())
    secrets._hidden.cache_clear()
    yield
    secrets._hidden.cache_clear()


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("run_token", "attention", False),
        ("api_token", "attention", True),
        ("password", "attention", True),
        ("api_token", "c0rrect-h0rse", True),
    ],
)
def test_a_revealed_value_is_looked_for_unless_it_is_a_word(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, found: bool
) -> None:
    monkeypatch.setenv(HIDDEN_VARIABLE, json.dumps({"<redacted>": value}))
    assert secrets.reveal("<redacted>", name) == value
    assert secrets.reveal("other", name) == "other"
    assert (redact_text(f"in {value}_base") != f"in {value}_base") is found
