"""Config keys on the command line: ``--training.precision=bf16``, ``--batch_sizes=[32,64]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.errors import ConfigError, UsageError
from torchscale.schema.explain import did_you_mean, dotted_keys, nearest_key
from torchscale.schema.strict_yaml import Data, format_path, one_line, read_yaml

_OPTION = re.compile(r"^--([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)(?:=(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Override:
    """One key and its new value; ``text`` is how it was written."""

    path: tuple[str, ...]
    value: Data
    text: str


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Plain arguments and overrides, apart; an override written without ``=`` takes the argument behind it."""
    plain, overrides = [], []
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if not argument.startswith("-"):
            plain.append(argument)
            continue
        overrides.append(argument)
        if "=" not in argument and remaining and not remaining[0].startswith("--"):
            overrides.append(remaining.pop(0))
    return plain, overrides


def parse_overrides(arguments: Sequence[str], known_options: Sequence[str] = ()) -> list[Override]:
    """The overrides in leftover arguments; a value may also follow as the next argument.

    Raises:
        UsageError: an argument is no override; real options that look alike are suggested.
        ConfigError: a value is not valid YAML.
    """
    found = []
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        match = _OPTION.match(argument)
        if match is None:
            raise UsageError(
                f"unexpected argument {argument!r}",
                hint="overrides are written --key.sub=value, such as --batch_sizes=32",
            )
        name, value = match[1], match[2]
        _check_key(name, argument, known_options)
        if value is None:
            if not remaining or remaining[0].startswith("--"):
                raise UsageError(f"{argument}: a value is missing", hint=f"write {argument}=VALUE")
            value = remaining.pop(0)
        text = f"--{name}={value}"
        path = tuple(name.split("."))
        found.append(Override(path, _value(path, value, text), text))
    return found


def apply_overrides(data: dict[str, Data], overrides: Sequence[Override]) -> None:
    """Set each override's key in ``data``, making the mappings on the way.

    Raises:
        ConfigError: a key on the way holds something that has no keys.
    """
    for override in overrides:
        here = data
        for depth, key in enumerate(override.path[:-1], start=1):
            below = here.get(key)
            if below is None:
                below = here[key] = {}
            if not isinstance(below, dict):
                raise ConfigError(f"{override.text}: {format_path(override.path[:depth])} is not a mapping of keys")
            here = below
        here[override.path[-1]] = override.value


def _check_key(name: str, argument: str, known_options: Sequence[str]) -> None:
    """A name without a dot that is no top-level key may be a mistyped option: say so before YAML is read."""
    keys = [key for key in dotted_keys() if "." not in key]
    if "." in name or name in keys:
        return
    near = did_you_mean(f"--{name}", [*known_options, *(f"--{key}" for key in keys)])
    place = nearest_key(name, ()).replace("'", "'--", 1)
    raise UsageError(one_line(f"{argument.partition('=')[0]}: no such option or config key{place or near}"))


def _value(path: tuple[str, ...], text: str, shown: str) -> Data:
    if path[:2] == ("launch", "env") and len(path) == 3:
        return _environment_value(text, shown)
    if not text.strip():
        raise ConfigError(one_line(f"{shown}: the value is empty; write null to unset a key"))
    try:
        return read_yaml(text, shown).data
    except ConfigError as error:
        raise ConfigError(f"{one_line(shown)}: {error.message.rpartition(': ')[2]}") from error


def _environment_value(text: str, shown: str) -> str:
    """The words as they are: ``--launch.env.OMP_NUM_THREADS=4`` is text, as it is in a shell."""
    try:
        data = read_yaml(text, shown).data
    except ConfigError:
        return text
    return data if isinstance(data, str) else text
