"""Objects of which some fields have another type than expected: what can be read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_MAX_SHOWN, _MAX_NAME = 16, 60


def read_fields(
    kind: type[T],
    content: Mapping[Any, Any],
    unread: Counter[str],
    *,
    within: str = "",
    strict: Collection[str] = (),
) -> T:
    """The fields that can be read, the others as their defaults. Text that is a number is the
    number, a number is a text where one is expected, and ``null`` is no value.

    Args:
        kind: A struct of which every field has a default.
        content: The object.
        unread: Counts the fields of another type, by their names.
        within: What is put before the names.
        strict: Fields that have to be right.

    Raises:
        ValueError: one of ``strict`` has another type.
    """
    made = kind()
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in content:
            continue
        value = content[name]
        try:
            setattr(made, field.name, _value(value, field.type))
        except (ValueError, OverflowError) as error:
            if name in strict:
                raise ValueError(f"{within}{name}: {error}") from error
            if value is not None:
                unread[f"{within}{name}"] += 1
    return made


def counted(counts: Counter[str]) -> str:
    """``bytes (3), Seq (1)``, the most frequent first."""
    parts = [f"{name[:_MAX_NAME]} ({count:,})" for name, count in counts.most_common(_MAX_SHOWN)]
    return ", ".join(parts) + " …" * (len(counts) > _MAX_SHOWN)


def _value(value: Any, wanted: Any) -> Any:  # noqa: ANN401 - of any type, as JSON has them
    if wanted is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if wanted is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        value = value.strip()
    return msgspec.convert(value, wanted, strict=False)
