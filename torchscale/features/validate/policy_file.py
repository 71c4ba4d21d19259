"""A policy from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from torchscale.config.load import read_document
from torchscale.config.yaml_reader import ConfigDocument, Data, KeyPath, format_path
from torchscale.errors import ConfigError
from torchscale.schema.node.policy import Policy, Subject
from torchscale.util.text import one_line
from torchscale.util.words import capped, did_you_mean

_MOST_PROBLEMS = 20
_MOST_CHARACTERS = 500
"""Of a line on a problem."""
_KEYS = tuple(Policy.model_fields)
_SUBJECTS = tuple(subject.value for subject in Subject)
_EXPECTED = {
    "looked_at": f"a list of: {', '.join(_SUBJECTS)}",
    "burn_in_minutes": "minutes, 0 for none, a week at most",
    "rounds": "a whole number of at least 3",
    "compared": "true or false",
    "baseline_loss_percent": "a number from 0 to below 100",
    "flap_percent": "a number from 0 to below 100",
    "return_percent": "a number from 0 to below 100",
}
"""Key → what it must be."""


def read_policy(path: Path) -> Policy:
    """The policy in a file of YAML, or of JSON by its ending. Keys that it leaves out have their
    default.

    Raises:
        ConfigError: a line per mistake: file and line, key, value, what was expected.
    """
    document = read_document(path)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path} holds no policy; expected keys such as {', '.join(_KEYS[:3])}")
    problems = [
        f"{path}:{line}: {format_path(key)}: {text}" for line, key, text in document.problems
    ]
    try:
        policy = Policy.model_validate(document.data)
    except ValidationError as error:
        problems += _explained(error, document)
    if problems:
        told = [one_line(text)[:_MOST_CHARACTERS] for text in dict.fromkeys(problems)]
        raise ConfigError("\n".join(capped(told, _MOST_PROBLEMS, "and {} more")))
    return policy


def _explained(error: ValidationError, document: ConfigDocument) -> Iterator[str]:
    for details in error.errors(include_url=False):
        path: KeyPath = details["loc"]
        place = f"{document.name}:{document.lines.get(path, document.lines.get(path[:1], 1))}"
        yield f"{place}: {format_path(path)}: {_problem(path, details)}"


def _problem(path: KeyPath, details: ErrorDetails) -> str:
    key, value = str(path[0]), details["input"]
    if details["type"] == "extra_forbidden":
        expected = did_you_mean(key, _KEYS) or f"; expected one of {', '.join(_KEYS)}"
        return f"unknown key{expected}"
    near = ""
    if len(path) > 1:
        near = did_you_mean(str(value), _SUBJECTS)
    return f"{_shown(value)}; expected {_EXPECTED.get(key, 'another key')}{near}"


def _shown(value: Data) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
