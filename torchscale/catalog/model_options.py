"""Options of models: what is wrong with one, and what tells a variant of a model from others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from torchscale.catalog.model_facts import OptionValue
from torchscale.catalog.models import MAY_BE_ZERO, MODELS


def model_title(name: str, options: Mapping[str, OptionValue] | None = None) -> str:
    """The catalogued title, else the name itself; with :func:`options_suffix`. The number of
    parameters in a title is left out where an option may change it: ``encoder-decoder
    (d_model=256)``."""
    facts = MODELS.get(name)
    title = facts.title if facts else name
    if set(changed_options(name, options)) - _KEEPS_PARAMETERS:
        title = _SIZE.sub("", title)
    return title + options_suffix(name, options)


def changed_options(name: str, options: Mapping[str, OptionValue] | None) -> dict[str, OptionValue]:
    """Options that differ from the model's defaults."""
    facts = MODELS.get(name)
    defaults = facts.options if facts else {}
    return {
        key: value
        for key, value in (options or {}).items()
        if key not in defaults or defaults[key] != value
    }


def options_text(changed: Mapping[str, OptionValue]) -> str:
    """``d_model=256, num_layers=2``."""
    return ", ".join(f"{key}={value}" for key, value in changed.items())


def options_suffix(name: str, options: Mapping[str, OptionValue] | None) -> str:
    """What tells a variant of a model from others, in a few characters for tables, charts and
    progress lines: its changed options, else their initials, else four characters of their hash;
    empty without any.

    ``" (d_model=256)"``, ``" dm256 l2 h4 sl128"``, ``" #3f2a"``.
    """
    changed = changed_options(name, options)
    if not changed:
        return ""
    full = options_text(changed)
    if len(full) <= _SUFFIX_CHARACTERS:
        return f" ({full})"
    initials = {key: _initials(key) for key in changed}
    short = " ".join(
        f"{initials[key]}{'' if _is_number(value) else '='}{value}"
        for key, value in changed.items()
    )
    if len(short) <= _SUFFIX_CHARACTERS and len(set(initials.values())) == len(initials):
        return f" {short}"
    return f" #{hashlib.sha256(full.encode()).hexdigest()[:4]}"


def _initials(option: str) -> str:
    """``d_model`` → ``dm``, ``num_layers`` → ``l``."""
    return "".join(word[:1] for word in option.removeprefix("num_").split("_"))


def _is_number(value: OptionValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SUFFIX_CHARACTERS = 24
"""A name with it stays on one or two lines of a column."""
_SIZE = re.compile(r" \d+(\.\d+)?[MB]$")
_KEEPS_PARAMETERS = frozenset({"sequence_length", "image_size", "num_classes"})
"""Options that leave the size of a model as it is, or nearly so."""


def option_problem(name: str, value: OptionValue, known: Mapping[str, OptionValue]) -> str:
    """The problem with a model's option; empty if there is none."""
    if name not in known:
        return f"no model of this config has the option {name!r}; known: {', '.join(sorted(known))}"
    default = known[name]
    if isinstance(default, float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and float(value) >= 0:
            return ""
        return f"expected a number of at least 0, such as {default:g}"
    least = 0 if name in MAY_BE_ZERO else 1
    if type(value) is type(default) and (not isinstance(value, int) or value >= least):
        return ""
    if least == 0:
        return "expected a whole number of at least 0"
    return f"expected a positive whole number such as {default}"
