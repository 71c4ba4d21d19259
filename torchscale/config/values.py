"""A config key and its value as typed data. No pydantic and no YAML here: commands import this to
describe options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConfigValue:
    """A config key with a value that is never parsed as YAML: text stays text, whatever it looks
    like.

    Attributes:
        key: Dotted, such as ``hardware.link``.
        value: ``None``, a boolean, number, text, path or enum member, or lists and mappings of
            them.
        option: The option that the user typed, such as ``--link``, for error messages; empty where
            there is none.
    """

    key: str
    value: object
    option: str = ""
