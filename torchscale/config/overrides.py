"""Changes of single config keys: ``--training.precision=bf16`` on the command line, and typed
values of options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.config.messages import dotted_keys, nearest_key, shortened_value, shown
from torchscale.config.other_names import OTHER_KEYS
from torchscale.config.plain_data import plain_data
from torchscale.config.values import ConfigValue
from torchscale.config.yaml_reader import MAX_DEPTH, Data, KeyPath, format_path, read_yaml
from torchscale.errors import ConfigError, UsageError
from torchscale.util.redaction import redact_arguments
from torchscale.util.text import one_line
from torchscale.util.words import did_you_mean

_RENAMED = re.compile(r"unknown key; write '([a-z_.]+)'")
"""A problem that names the key to write."""
_OPTION = re.compile(r"^--([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)(?:=(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Override:
    """A key and its new value.

    Attributes:
        path: Path of the key, such as ``("hardware", "link")``.
        value: Replaces the key's value.
        text: The override as the user wrote it, in one line: ``--hardware.link=nvlink4``, ``--link
            nvlink4``.
        from_option: Whether the user gave it with an option of the command, and so never wrote the
            key.
    """

    path: tuple[str, ...]
    value: Data
    text: str
    from_option: bool = False

    def message(self, where: KeyPath, problem: str) -> str:
        """``problem`` of the key at ``where``, behind the text that the user wrote."""
        inside = where[len(self.path) :]
        same_key = where == self.path or (
            self.from_option and all(isinstance(part, int) for part in inside)
        )
        renamed = _RENAMED.fullmatch(problem)
        if renamed is not None and not self.from_option:
            typed = shlex.quote(f"--{renamed[1]}={self.text.partition('=')[2]}")
            problem = f"unknown key; write {typed}"
        if same_key:
            return one_line(f"{self.text}: {problem}")
        return one_line(f"{self.text}: {format_path(where)}: {problem}")


def override_of(value: ConfigValue) -> Override:
    """A typed value as an override.

    Raises:
        ConfigError: the value holds what no config file could hold.
    """
    data = plain_data(value.value, value.option or value.key)
    text = f"{value.key}={_typed(data)}"
    if value.option:
        text = f"{value.option} {_typed(data)}"
    return Override(
        tuple(value.key.split(".")), data, one_line(text), from_option=bool(value.option)
    )


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates plain arguments from overrides; an override without ``=`` takes the next argument
    as its value."""
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
    """The overrides in arguments; a value may also be the next argument.

    Raises:
        UsageError: an argument is not an override; similar options are suggested.
        ConfigError: a value is not valid YAML.
    """
    overrides = []
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
        typed = value if value is not None else next(iter(remaining), "VALUE")
        _check_key(name, argument, typed, known_options)
        if value is None:
            if not remaining or remaining[0].startswith("--"):
                raise UsageError(f"{argument}: missing value", hint=f"write {argument}=VALUE")
            value = remaining.pop(0)
        text = f"--{name}={value}"
        path = tuple(name.split("."))
        if len(path) > MAX_DEPTH:
            raise ConfigError(
                one_line(f"{shortened_value(text)}: a key of more than {MAX_DEPTH} parts")
            )
        overrides.append(Override(path, _value(path, value, text), text))
    return overrides


def apply_overrides(data: dict[str, Data], overrides: Sequence[Override]) -> None:
    """Set each override's key in ``data``, creating the mappings on the way.

    Raises:
        ConfigError: a key on the way is not a mapping.
    """
    for override in overrides:
        here = data
        for depth, key in enumerate(override.path[:-1], start=1):
            below = here.get(key)
            if below is None:
                below = here[key] = {}
            if not isinstance(below, dict):
                raise ConfigError(
                    f"{override.text}: {format_path(override.path[:depth])} is not a mapping of "
                    "keys"
                )
            here = below
        here[override.path[-1]] = override.value


def _check_key(name: str, argument: str, value: str, known_options: Sequence[str]) -> None:
    """A name without a dot that is not a top-level key may be a mistyped option: reported before
    YAML is read."""
    keys = [key for key in dotted_keys() if "." not in key]
    if "." in name or name in keys:
        return
    shown_name = argument.partition("=")[0]
    folded = name.replace("-", "_")
    if folded in OTHER_KEYS:
        typed = shlex.quote(*redact_arguments([f"--{OTHER_KEYS[folded]}={value}"]))
        raise UsageError(
            f"{shown_name}: no such option or config key", hint=one_line(f"write {typed}")
        )
    near = did_you_mean(f"--{name}", [*known_options, *(f"--{key}" for key in keys)])
    place = nearest_key(name, ()).replace("'", "'--", 1)
    raise UsageError(one_line(f"{shown_name}: no such option or config key{place or near}"))


def _value(path: tuple[str, ...], text: str, shown: str) -> Data:
    if path[:2] == ("launch", "env") and len(path) == 3:
        return _environment_value(text, shown)
    if not text.strip():
        raise ConfigError(one_line(f"{shown}: empty value; write null to unset a key"))
    try:
        return read_yaml(text, shown).data
    except ConfigError as error:
        key = ".".join(path)
        is_cut = text.count("{") > text.count("}")
        hint = None
        if is_cut:
            hint = f"the shell splits it at blanks: quote it, or write --{key}.NAME=VALUE"
        raise ConfigError(
            f"{one_line(shown)}: {error.message.rpartition(': ')[2]}", hint=hint
        ) from error


def _environment_value(text: str, shown: str) -> str:
    """The value as text: ``--launch.env.OMP_NUM_THREADS=4`` is text, as in a shell."""
    try:
        data = read_yaml(text, shown).data
    except ConfigError:
        return text
    if isinstance(data, str):
        return data
    return text


def _typed(data: Data) -> str:
    """A value as a user types it behind an option, cut to fit a one-line message."""
    if isinstance(data, list) and not any(isinstance(item, list | dict) for item in data):
        return shortened_value(",".join(map(_typed, data)))
    if isinstance(data, str) and data:
        return shortened_value(data)
    return shown(data)
