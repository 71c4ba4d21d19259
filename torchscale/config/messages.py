"""Messages of validation errors: the key, its value, what was expected, and the nearest valid
name."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from torchscale.catalog.models import MODELS
from torchscale.config.experiment import Experiment, KeyProblems
from torchscale.config.other_names import OTHER_KEYS, SAME_PRECISIONS
from torchscale.config.strategy import STRATEGIES
from torchscale.config.yaml_reader import Data, KeyPath
from torchscale.util.units import parse_duration
from torchscale.util.words import did_you_mean, folded

EXPONENTIAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,2}")
"""A number that YAML may read as text."""
_LIST_AS_TEXT = re.compile(r"[\w.:-]+( *, *[\w.:-]+)+")
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
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "union_tag_invalid": "{expected_tags}",
}
"""Kind of pydantic's error → what was expected, with the values of its context."""
_MODELS_LISTED = "; see `torchscale docs names models`, or use package.module:function"
_MAX_VALUE_CHARACTERS = 60
"""A message with file, key and expectation then still fits on two lines of a terminal."""


def explain(error: ValidationError, data: Data) -> list[tuple[KeyPath, str]]:
    """Path and sentence of every problem, one per path."""
    problems: list[tuple[KeyPath, str]] = []
    grouped: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        raised = details.get("ctx", {}).get("error")
        if isinstance(raised, KeyProblems):
            problems += [
                (path, _with_value(text, value_at(data, path)))
                for path, text in raised.problems.items()
            ]
        else:
            grouped.setdefault(_true_path(details, data), []).append(details)
    inner = {path[:end] for path in grouped for end in range(len(path))}
    for path, group in grouped.items():
        # A list that may also be written as a word fails as both; only its wrong item is reported.
        if path not in inner or any(details["type"] != "literal_error" for details in group):
            problems.append((path, _sentence(path, group, data)))
    return problems


def unknown_model(name: str) -> str:
    """What an unknown model's error says: the name, and the nearest one or where they are listed."""
    near = _as_list(name) or did_you_mean(name, MODELS)
    return f"unknown model {shown(name)}{near or _MODELS_LISTED}"


def nearest_key(dotted_key: str, siblings: Collection[str]) -> str:
    """A suggestion: what a key of other tools is called here, the section where a key of that name
    belongs, or a similar key of the same section."""
    if dotted_key in OTHER_KEYS:
        return f"; write {OTHER_KEYS[dotted_key]!r}"
    key = dotted_key.rpartition(".")[2]
    for dotted in dotted_keys():
        name = dotted.rpartition(".")[2]
        if folded(name) == folded(key) and name not in siblings:
            return f"; did you mean {dotted!r}?"
    return did_you_mean(key, siblings)


def shown(value: object) -> str:
    """A value as a config writes it, cut to fit a one-line message."""
    return shortened_value(_written(value))


def shortened_value(text: str) -> str:
    """``text``, cut to fit a one-line message."""
    if len(text) <= _MAX_VALUE_CHARACTERS:
        return text
    return text[: _MAX_VALUE_CHARACTERS - 1] + "…"


def _written(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def keys_of(path: KeyPath, data: Data = None) -> list[str]:
    """The valid keys of the mapping at ``path`` of ``data``."""
    model: Any = Experiment
    if path[:2] == ("parallel", "strategy"):
        kind = STRATEGIES.get(str(value_at(data, (*path, "name"))))
        if kind is None:
            return []
        return list(kind.model_fields)
    for part in path:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
        field = model.model_fields.get(str(part))
        model = field.annotation if field is not None else None
    is_section = isinstance(model, type) and issubclass(model, BaseModel)
    if is_section:
        return list(model.model_fields)
    return []


def value_at(data: Data, path: KeyPath) -> Data:
    """The value at a path; a scalar is every item of its axis."""
    for part in path:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
    return data


def _true_path(details: ErrorDetails, data: Data) -> KeyPath:
    """The path in the user's data: pydantic's, without the labels of unions and of single values
    read as axes."""
    path: list[str | int] = []
    here = data
    for position, part in enumerate(details["loc"]):
        if isinstance(here, dict) and part in here:
            here = here[str(part)]
            path.append(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
            path.append(part)
        elif (
            position == len(details["loc"]) - 1
            and details["type"] == "missing"
            and isinstance(part, str)
        ):
            path.append(part)
    return tuple(path)


def _sentence(path: KeyPath, group: list[ErrorDetails], data: Data) -> str:
    value = value_at(data, path)
    for details in group:
        kind, context = details["type"], details.get("ctx", {})
        if kind == "extra_forbidden":
            return f"unknown key{nearest_key('.'.join(map(str, path)), keys_of(path[:-1], data))}"
        if kind == "missing":
            return "this key is required"
        if kind == "union_tag_not_found":
            return f"the key 'name' is required: one of {', '.join(STRATEGIES)}"
        if kind == "value_error":
            return _value_error(str(context.get("error")), value)
    if path[:1] == ("models",) and any(details["type"] == "model_type" for details in group):
        return f"expected a model's name, or a mapping {{name: …, option: …}}, got {shown(value)}"
    if path == ("model",) and isinstance(value, str):
        return f"holds the settings of all models; models are named by 'models: [{value}]'"
    kinds = list(dict.fromkeys(_expectation(details) for details in group))
    expected = " or ".join(
        kind for kind in kinds if kind != "a whole number" or "a number" not in kinds
    )
    return f"expected {expected}, got {shown(value)}{_hint(value, expected, group)}"


def _hint(value: Data, expected: str, group: list[ErrorDetails]) -> str:
    """What to write instead, where the value suggests it."""
    if value is None:
        return "; remove the key, or give it a value"
    if not isinstance(value, str):
        if expected == "text" and type(value) in (int, float):
            return f"; quote it to make it text: '{value}'"
        return ""
    if EXPONENTIAL.fullmatch(value) and "number" in expected:
        plain = f"{float(value):g} or {_with_point(value)}"
        if "whole" in expected:
            plain = f"{float(value):.0f}"
        return f"; {value} is text in YAML: write {plain}"
    literals = [text for details in group for text in _literals(details)]
    same = SAME_PRECISIONS.get(value.casefold())
    if same in literals:
        return f"; write {same!r}"
    if (
        "number" in expected
        and "whole" not in expected
        and (seconds := _seconds(value)) is not None
    ):
        return f"; a time is a number of seconds: {seconds:g}"
    return did_you_mean(value, literals) or _as_list(value)


def _seconds(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _as_list(value: str) -> str:
    """A hint for ``64,128``, which YAML reads as one word."""
    if len(value) > _MAX_VALUE_CHARACTERS or not _LIST_AS_TEXT.fullmatch(value):
        return ""
    return f"; write a list as [{', '.join(re.split(r' *, *', value))}]"


def _value_error(text: str, value: Data) -> str:
    if text == "unknown model":
        name = value["name"] if isinstance(value, dict) else value
        return unknown_model(str(name))
    if shown(value) in text or isinstance(value, dict):
        return text
    return f"{text}; got {shown(value)}"


def _with_value(text: str, value: Data) -> str:
    if text.startswith("expected"):
        return f"{text}, got {shown(value)}"
    return text


def _expectation(details: ErrorDetails) -> str:
    expected = _EXPECTED.get(details["type"])
    if expected is None:
        return details["msg"]
    context = details.get("ctx", {})
    return expected.format_map(
        {key: f"{it:g}" if isinstance(it, float) else it for key, it in context.items()}
    )


def _literals(details: ErrorDetails) -> list[str]:
    if details["type"] not in ("literal_error", "union_tag_invalid"):
        return []
    return re.findall(r"'([^']*)'", _expectation(details))


def _with_point(number: str) -> str:
    """``1e3`` → ``1.0e+3``, which YAML reads as a number."""
    mantissa, _, exponent = number.lower().partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    if exponent[:1] not in "+-":
        exponent = f"+{exponent}"
    return f"{mantissa}e{exponent}"


@cache
def dotted_keys() -> tuple[str, ...]:
    """Every key there is, ``training.seed`` and the like, for suggestions."""
    keys = []
    for name, field in Experiment.model_fields.items():
        keys.append(name)
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys += [f"{name}.{key}" for key in section.model_fields]
    return tuple(keys)
