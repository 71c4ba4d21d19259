"""Python values as the data of a config: what YAML could hold, without going through YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum

from torchscale.config.yaml_reader import MAX_DEPTH, MAX_WHOLE, Data, KeyPath, format_path
from torchscale.errors import ConfigError
from torchscale.util.text import one_line


def plain_data(value: object, where: str, path: KeyPath = ()) -> Data:
    """``value`` as config data: enum members by their values, paths as text, tuples as lists.

    Args:
        value: Any Python value.
        where: What error messages start with, such as ``config`` or ``--link``.
        path: Keys and list indices from the outermost value to this one.

    Raises:
        ConfigError: it holds an object that a config file could not hold, a number above 2**63, or
            text with a NUL character, or it is nested too deeply; a line with ``where``, the key
            and the problem.
    """
    if len(path) > MAX_DEPTH:
        raise _refusal(where, path[:1], f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Enum):
        return plain_data(value.value, where, path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_WHOLE:
            raise _refusal(where, path, f"{_digits(value)} is too large a number")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str | os.PathLike):
        return _plain_text(value, where, path)
    if isinstance(value, list | tuple):
        return [plain_data(item, where, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {
            _plain_key(key, where, path): plain_data(item, where, (*path, str(key)))
            for key, item in value.items()
        }
    raise _refusal(
        where,
        path,
        f"expected text, a number, true, false, a list or a mapping, got {type(value).__name__}",
    )


def _plain_key(key: object, where: str, path: KeyPath) -> str:
    if not isinstance(key, str):
        raise _refusal(where, path, f"keys must be text, got {key!r}")
    return _plain_text(key, where, path)


def _plain_text(value: str | os.PathLike[str], where: str, path: KeyPath) -> str:
    text = os.fspath(value)
    if not isinstance(text, str):
        raise _refusal(where, path, f"expected a path as text, got {type(text).__name__}")
    # A path, a name or an environment variable with NUL in it fails in the operating system, in
    # every rank.
    if "\0" in text:
        raise _refusal(where, path, "text must not contain a NUL character")
    return str(text)


def _digits(number: int) -> str:
    """The first digits of a large number. Python refuses to print numbers of more than 4,300
    digits."""
    if abs(number) < 10**300:
        return f"{number:.3e}"
    return "a number of more than 300 digits"


def _refusal(where: str, path: KeyPath, problem: str) -> ConfigError:
    return ConfigError(
        one_line(": ".join(part for part in (where, format_path(path), problem) if part))
    )
