"""What is published: as a result has it, or taken from the attributes of a result."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass as plain
from dataclasses import replace
from typing import Any

import pytest
from pydantic import AliasPath, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from torchscale.schema.exports.base import PUBLISHED, Export, Unpublished, exported


@dataclass(frozen=True, config=PUBLISHED)
class Rate:
    """A rate."""

    per_second: float
    """Of all devices."""
    flags: tuple[str, ...] = ()
    half_width: Unpublished[float | None] = None


class RateExport(Export):
    """A rate as it is published."""

    name: str
    level: float = Field(validation_alias=AliasPath("rate", "per_second"))
    rate: Rate


@plain(frozen=True)
class Measured:
    """A result with more than is published."""

    name: str
    rate: Rate
    inside: str = "not published"


def test_a_result_is_published_without_what_is_no_key() -> None:
    adapter = TypeAdapter(Rate)
    assert json.loads(adapter.dump_json(Rate(2.0, (), 0.1))) == {"per_second": 2.0, "flags": []}
    schema = adapter.json_schema(mode="serialization")
    assert schema["properties"].keys() == {"per_second", "flags"}
    assert schema["required"] == ["per_second", "flags"]  # a default is written too
    assert schema["properties"]["per_second"]["description"] == "Of all devices."


@pytest.mark.parametrize("rate", [math.inf, math.nan, "2.0", None])
def test_a_result_holds_only_what_can_be_published(rate: Any) -> None:
    with pytest.raises(ValidationError):
        Rate(rate)
    with pytest.raises(ValidationError):
        replace(Rate(2.0), per_second=rate)


def test_what_is_not_given_is_taken_from_the_attributes_of_a_result() -> None:
    measured = Measured("tiny", Rate(2.0, half_width=0.1))
    found = exported(RateExport, measured, name="other")
    assert found.model_dump() == {
        "name": "other",
        "level": 2.0,
        "rate": {"per_second": 2.0, "flags": ()},
    }
    assert exported(RateExport, measured).name == "tiny"


def test_an_attribute_that_a_result_lacks_is_an_error() -> None:
    with pytest.raises(ValidationError, match="per_second"):
        exported(RateExport, Measured("tiny", Rate(2.0)), rate=None)
