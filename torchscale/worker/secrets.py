"""The values that stand in no file: what the launcher took out of a cell, since it is a secret."""

from __future__ import annotations

import functools
import json
import os

from torchscale.catalog.model_facts import OptionValue
from torchscale.config.secrets import HIDDEN_VARIABLE
from torchscale.util.redaction import note_removed


def reveal(value: OptionValue, name: str = "") -> OptionValue:
    """The value that ``value``, an option ``name`` or a path of a cell, stands for; itself where it
    hides none."""
    if isinstance(value, str) and value in _hidden():
        hidden = _hidden()[value]
        note_removed(str(hidden), value, name)
        return hidden
    return value


@functools.cache
def _hidden() -> dict[str, OptionValue]:
    """Hidden values, by the text that files have in their place; the secrets in them are redacted
    from whatever this rank writes."""
    hidden: dict[str, OptionValue] = json.loads(os.environ.get(HIDDEN_VARIABLE, "{}"))
    for shown, value in hidden.items():
        note_removed(str(value), shown)
    return hidden
