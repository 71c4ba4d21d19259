"""What everything that other programs read has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter

from torchscale.schema.base import MAX_TEXT, Frozen

RESULTS_SCHEMA_VERSION: Literal[1] = 1
"""Schema version of the JSON that commands print and write for other programs. It grows when a key
is removed, renamed or changes its meaning, and not when one is added. The records in a run folder
have a version of their own."""


class Export(Frozen):
    """Part of a published JSON document. Its keys are the fields here and nothing else.
    ``model_validate(summary)`` reads each from the attribute of its name or, where it has an
    alias, from there: when an attribute inside torchscale is renamed, the field gets an alias and
    nothing changes outside. The text under a field is its description in the published JSON
    Schema."""

    model_config = ConfigDict(strict=True, use_attribute_docstrings=True, from_attributes=True)


@dataclass(frozen=True)
class PublishedDocument:
    """What other programs read: its type, its version, what it is."""

    type: Any
    version: int
    title: str
    description: str

    def json_schema(self) -> dict[str, Any]:
        """As pydantic makes it, of what is written."""
        return TypeAdapter(self.type).json_schema(mode="serialization")


E = TypeVar("E", bound=Export)
T = TypeVar("T")

Unpublished = Annotated[T, Field(exclude=True)]
"""A field of a result that is no key."""
PUBLISHED = ConfigDict(
    strict=True,
    use_attribute_docstrings=True,
    json_schema_serialization_defaults_required=True,
    extra="forbid",
    allow_inf_nan=False,
    str_max_length=MAX_TEXT,
)
"""Of a dataclass of results that is published as it is: its fields are keys, and a property that is
``computed_field`` another one behind them."""


def exported(kind: type[E], source: object, **given: object) -> E:
    """A part with what is ``given``, by the names that it reads, and everything else from the
    attributes of ``source``."""
    return kind.model_validate(_With(source, given))


class _With:
    """An object some of whose attributes are others."""

    def __init__(self, source: object, given: Mapping[str, object]) -> None:
        self._source = source
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)
