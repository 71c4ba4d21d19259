"""Building blocks of a config: the strict base section, and axes of one or several values."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

T = TypeVar("T")


def as_axis(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """A scalar is an axis of one; a list becomes a tuple. Repeated values are refused: they would
    be one cell twice."""
    items = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not items:
        raise ValueError("an axis needs at least one value")
    seen: set[str] = set()
    for item in items:
        same = repr(sorted(item.items(), key=repr) if isinstance(item, dict) else item)
        if same in seen:
            written = item["name"] if isinstance(item, dict) and list(item) == ["name"] else item
            raise ValueError(f"{written!r} is listed twice; list each value of an axis once")
        seen.add(same)
    return items


def as_tuple(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """A list becomes a tuple; any other value is left to validation."""
    if isinstance(value, list):
        return tuple(value)
    return value


def as_named(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """``ddp`` is short for ``{name: ddp}``, in a list too."""
    if isinstance(value, list | tuple):
        return [as_named(item) for item in value]
    if isinstance(value, str):
        return {"name": value}
    return value


class AxisSchema:
    """JSON Schema of an axis, for editors: one item or a list of them; ``also`` describes short
    forms of an item."""

    def __init__(self, *also: dict[str, Any]) -> None:
        self._also = list(also)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        array = handler(schema)
        items = [array["items"], *self._also]
        return {"anyOf": [*items, {"type": "array", "minItems": 1, "items": {"anyOf": items}}]}


Axis = Annotated[tuple[T, ...], BeforeValidator(as_axis), AxisSchema()]
"""A value or a list of values; each becomes cells of its own."""

PositiveInt = Annotated[int, Field(ge=1)]
PositiveSeconds = Annotated[float, Field(gt=0)]


class ConfigSection(BaseModel):
    """Base of every config section: unknown keys are errors, and text is never converted to a
    number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )
