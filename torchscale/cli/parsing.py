"""Texts of options as values, with errors that name the option."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from torchscale.errors import ConfigError, UsageError
from torchscale.util.units import parse_duration

E = TypeVar("E", bound=Enum)

_LOWEST_PRICE, _HIGHEST_PRICE = 1e-6, 1e6
"""Dollars for a device and hour: a thousandth of the price of a core, and far above that of any
machine."""


def parse_seconds(option: str, text: str) -> float:
    """Seconds above 0 from ``30``, ``30s`` or ``2m``.

    Raises:
        UsageError: it is not a duration above 0.
    """
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if not seconds > 0:
        raise UsageError(f"{option}: {text} is not above 0", hint="write 30, 30s or 2m")
    return seconds


def parse_delay(option: str, text: str) -> float:
    """Seconds, 0 among them.

    Raises:
        UsageError: it is not a duration.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def listed(values: Iterable[str] | None) -> list[str]:
    """Every value of an option that may be given several times, or once with commas: ``--algo
    Ring,Tree``. Brackets around a list, as in a config, are optional."""
    texts = (value.strip() for value in values or ())
    texts = (text[1:-1] if text.startswith("[") and text.endswith("]") else text for text in texts)
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def integers(option: str, values: Iterable[str] | None) -> list[int]:
    """Whole numbers from the values of an option, split as by :func:`listed`.

    Raises:
        UsageError: one of them is not a whole number.
    """
    numbers = []
    for text in listed(values):
        try:
            numbers.append(int(text))
        except ValueError as error:
            raise UsageError(f"{option} {text}: expected a whole number") from error
    return numbers


def members(option: str, values: Iterable[str] | None, kind: type[E]) -> list[E]:
    """Members of an enum from the values of an option, split as by :func:`listed`.

    Raises:
        UsageError: one of them is none of its values.
    """
    known = {member.value: member for member in kind}
    for text in listed(values):
        if text not in known:
            raise UsageError(f"{option} {text}: expected one of {', '.join(known)}")
    return [known[text] for text in listed(values)]


def counts(option: str, values: Iterable[str] | None) -> list[int] | str:
    """Whole numbers from the values of an option; the word ``auto`` alone stays as it is.

    Raises:
        UsageError: one of them is not a whole number.
    """
    if listed(values) == ["auto"]:
        return "auto"
    return integers(option, values)


def model_entries(option: str, values: Iterable[str] | None) -> list[object]:
    """Models from the values of an option, split as by :func:`listed`; entries with options may be
    written as in a config: ``[{name: gpt2, sequence_length: 512}]``.

    Raises:
        ConfigError: such an entry is not valid YAML.
    """
    entries: list[object] = []
    for value in values or ():
        if "{" not in value:
            entries += listed([value])
            continue
        from torchscale.config.yaml_reader import read_yaml  # noqa: PLC0415 - only entries with options need it

        try:
            data = read_yaml(value, option).data
        except ConfigError as error:
            raise ConfigError(f"{option} {value}: {error.message.rpartition(': ')[2]}") from error
        if isinstance(data, list):
            entries += data
        else:
            entries.append(data)
    return entries


def is_price(price: float | None) -> bool:
    """Whether it can be the price of a device and hour, in dollars."""
    return price is not None and _LOWEST_PRICE <= price <= _HIGHEST_PRICE


def check_price(price: float | None) -> None:
    """That ``--cost`` can be a price.

    Raises:
        UsageError: it cannot.
    """
    if price is not None and not is_price(price):
        raise UsageError(
            f"--cost {price:g}: expected a price above 0 of a device and hour, such as 2.50"
        )


def number(text: str) -> float | None:
    """``text`` as a number; ``None`` where it is none. Python's own ``1_0`` is a mistyped number to
    everybody else."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def share(option: str, text: str) -> float:
    """``2%`` or ``0.02`` as 0.02.

    Raises:
        UsageError: it is no share from 0 to less than 1.
    """
    value = number(text.strip().removesuffix("%"))
    if value is not None and text.strip().endswith("%"):
        value /= 100
    if value is None or not 0 <= value < 1:
        raise UsageError(f"{option} {text}: expected a share such as 2% or 0.02")
    return value
