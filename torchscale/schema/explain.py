"""Validation errors in plain words: the key, what stands there, what was expected, and the nearest right name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from torchscale.catalog.models import MODELS
from torchscale.schema.config import Experiment, OptionError
from torchscale.schema.strict_yaml import Data, Path

_NUMBER_AS_TEXT = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+$")
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "tuple_type": "a list",
}
_MAX_VALUE_CHARACTERS = 60


def explain(error: ValidationError, data: Data) -> list[tuple[Path, str]]:
    """Path and sentence of every problem, one per path."""
    grouped: dict[Path, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        grouped.setdefault(_true_path(details, data), []).append(details)
    return [
        (path, _sentence(path, details, data))
        for path, details in grouped.items()
        if not _is_other_reading(path, details, grouped)
    ]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """A value as it may stand in a one-line message."""
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[: _MAX_VALUE_CHARACTERS - 1] + "…"


def keys_of(path: Path) -> list[str]:
    """The keys that may stand in the mapping at ``path``."""
    model: Any = Experiment
    for part in path:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
        field = model.model_fields.get(str(part))
        model = field.annotation if field is not None else None
    is_section = isinstance(model, type) and issubclass(model, BaseModel)
    return list(model.model_fields) if is_section else []


def value_at(data: Data, path: Path) -> Data:
    """What stands at a path; a scalar stands for each of its axis's items."""
    for part in path:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
    return data


def _is_other_reading(path: Path, group: list[ErrorDetails], grouped: dict[Path, list[ErrorDetails]]) -> bool:
    """Whether it only says that a list is not the word which may stand instead, while an item of it is wrong."""
    deeper = any(len(other) > len(path) and other[: len(path)] == path for other in grouped)
    return deeper and all(details["type"] == "literal_error" for details in group)


def _true_path(details: ErrorDetails, data: Data) -> Path:
    """The path in the user's data: pydantic's, without the labels of unions and of single values read as axes."""
    raised = details.get("ctx", {}).get("error")
    if isinstance(raised, OptionError):
        return _parse_path(raised.key)
    path: list[str | int] = []
    here = data
    for position, part in enumerate(details["loc"]):
        if isinstance(here, dict) and part in here:
            here = here[str(part)]
            path.append(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
            path.append(part)
        elif position == len(details["loc"]) - 1 and details["type"] == "missing" and isinstance(part, str):
            path.append(part)
    return tuple(path)


def _parse_path(text: str) -> Path:
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", text) if part)


def _sentence(path: Path, group: list[ErrorDetails], data: Data) -> str:
    value = value_at(data, path)
    for details in group:
        kind, context = details["type"], details.get("ctx", {})
        if kind == "extra_forbidden":
            return f"unknown key{did_you_mean(str(path[-1]), keys_of(path[:-1]))}"
        if kind == "missing":
            return "this key is required"
        if kind == "value_error":
            return _value_error(str(context.get("error")), value)
    expected = " or ".join(dict.fromkeys(_expectation(details) for details in group))
    hint = ""
    if isinstance(value, str):
        literals = [text for details in group for text in _literals(details)]
        hint = did_you_mean(value, literals)
        if _NUMBER_AS_TEXT.match(value):
            plain = f"{float(value):.0f}" if "whole" in expected else f"{float(value):g} or {_with_point(value)}"
            hint = f"; {value} is text in YAML: write {plain}"
    return f"expected {expected}, got {shown(value)}{hint}"


def _value_error(text: str, value: Data) -> str:
    if text == "unknown model":
        name = value["name"] if isinstance(value, dict) else value
        near = did_you_mean(str(name), MODELS)
        return f"unknown model {shown(name)}{near or '; see `torchscale list models`, or name package.module:function'}"
    return text if shown(value) in text or isinstance(value, dict) else f"{text}; got {shown(value)}"


def _expectation(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    bounds = {
        "greater_than_equal": ("ge", "a number of at least"),
        "greater_than": ("gt", "a number above"),
        "less_than": ("lt", "a number below"),
        "less_than_equal": ("le", "a number of at most"),
    }
    if kind in bounds:
        key, words = bounds[kind]
        return f"{words} {context[key]}"
    if kind == "literal_error":
        return str(context["expected"])
    return _EXPECTED.get(kind, details["msg"])


def _literals(details: ErrorDetails) -> list[str]:
    if details["type"] != "literal_error":
        return []
    return re.findall(r"'([^']*)'", str(details.get("ctx", {}).get("expected", "")))


def _with_point(number: str) -> str:
    """``1e3`` → ``1.0e+3``, which YAML reads as a number."""
    mantissa, _, exponent = number.lower().partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{exponent if exponent[:1] in '+-' else '+' + exponent}"


def spelled_sections() -> list[str]:
    """Every dotted key there is, for suggestions."""
    found = []
    for name, field in Experiment.model_fields.items():
        found.append(name)
        annotation = field.annotation
        for candidate in (annotation, *get_args(annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel) and name != "models":
                found += [f"{name}.{key}" for key in candidate.model_fields]
    return found
