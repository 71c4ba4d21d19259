"""What every record may hold: numbers that can be computed with, texts that can be shown."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError, create_model

import torchscale.features.bisect.state
import torchscale.features.cluster.nodes.messages
import torchscale.features.compare.history.records
import torchscale.schema
from torchscale.features.cluster.nodes.messages import ClockReading
from torchscale.schema.base import (
    LAST_MOMENT,
    MAX_NAME,
    MAX_TEXT,
    MOST_SECONDS,
    Count,
    EpochSeconds,
    Frozen,
    Integer,
    Moment,
    Name,
    NotNegative,
    Positive,
    PositiveCount,
    PositiveSeconds,
    Real,
    RoundedShare,
    Seconds,
    Share,
)
from torchscale.schema.exports.base import Export

_OF_CONFIG = ("config", "model_options", "strategy", "steps")
"""Fields that have the form that a config has."""
_WRAPPERS = ("schema", "items_schema", "values_schema", "keys_schema", "fields", "choices")


def models() -> Iterator[type[Frozen]]:
    """Every model of a file in a folder of ours. What commands print is computed from these."""
    found = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(torchscale.schema.__path__, "torchscale.schema.")
    ]
    for module in (
        *found,
        torchscale.features.compare.history.records,
        torchscale.features.bisect.state,
        torchscale.features.cluster.nodes.messages,
    ):
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Frozen)
                and not issubclass(value, Export)
                and value.__module__ == module.__name__
            ):
                yield value


def unbounded(schema: Any) -> bool:
    """Whether a part of pydantic's schema of a field takes numbers without a bound at each end;
    other models, which are tested by themselves, left out."""
    if isinstance(schema, (list, tuple)):
        return any(unbounded(part) for part in schema)
    if not isinstance(schema, dict) or schema.get("type") == "model":
        return False
    if schema.get("type") in ("int", "float"):
        return not ({"ge", "gt"} & schema.keys() and {"le", "lt"} & schema.keys())
    inner = [part for key, part in schema.items() if key in _WRAPPERS]
    return any(unbounded(list(part.values()) if part_is_named(part) else part) for part in inner)


def part_is_named(part: Any) -> bool:
    """Whether it is a table of schemas and no schema."""
    return isinstance(part, dict) and not isinstance(part.get("type"), str)


@pytest.mark.parametrize(
    "model", list(models()), ids=lambda model: f"{model.__module__[11:]}.{model.__name__}"
)
def test_no_number_of_a_record_is_without_bounds(model: type[Frozen]) -> None:
    """A number that was read is computed with, and nothing checks it again."""
    fields: Any = model.__pydantic_core_schema__
    while fields["type"] != "model-fields":
        fields = fields["schema"]
    loose = [name for name, field in fields["fields"].items() if unbounded(field)]
    if model is ClockReading:  # which may be wrong, and the first node says so
        assert loose == ["time"]
        return
    assert [name for name in loose if name not in _OF_CONFIG] == []


FIGURES, SPANS = (
    (Real, NotNegative, Positive),
    (Share, RoundedShare, Seconds, PositiveSeconds, EpochSeconds),
)
WHOLE = (Integer, Count, PositiveCount)
HOSTILE = (1e308, -1e308, 1e31, float("nan"), float("inf"), True, "1")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *product((*FIGURES, *SPANS, *WHOLE), HOSTILE),
        *product((*SPANS, *WHOLE), (10**19, 2**63)),
    ],
)
def test_a_number_that_nothing_measures_is_refused(kind: Any, value: object) -> None:
    with pytest.raises(ValidationError):
        create_model("Record", __base__=Frozen, number=(kind, ...)).model_validate(
            {"number": value}
        )


@pytest.mark.parametrize("kind", [NotNegative, Share, Seconds, EpochSeconds, Count])
def test_what_cannot_be_below_0_may_be_0(kind: Any) -> None:
    adapter = TypeAdapter(kind)
    assert adapter.validate_python(0) == 0
    with pytest.raises(ValidationError):
        adapter.validate_python(-1)


@pytest.mark.parametrize(
    ("kind", "kept", "refused"),
    [(PositiveSeconds, 1e-9, 0), (PositiveSeconds, 1e-9, 1e-15), (RoundedShare, -1e-12, -0.01)],
)
def test_what_takes_time_is_above_0_and_a_share_is_one_but_for_rounding(
    kind: Any, kept: float, refused: float
) -> None:
    adapter = TypeAdapter(kind)
    assert adapter.validate_python(kept) == kept
    with pytest.raises(ValidationError):
        adapter.validate_python(refused)


def test_what_took_the_longest_can_end_after_the_last_moment() -> None:
    last = datetime.fromtimestamp(LAST_MOMENT, timezone.utc)
    assert (last + timedelta(seconds=MOST_SECONDS)).year > last.year == 3000


class Told(Frozen):
    """A record with texts."""

    name: Name = ""
    text: str = ""
    texts: tuple[str, ...] = ()
    by_name: dict[str, str] = Field(default_factory=dict)
    began: Moment = ""


@pytest.mark.parametrize(
    "content",
    [
        {"name": "x" * (MAX_NAME + 1)},
        {"text": "x" * (MAX_TEXT + 1)},
        {"texts": ["", "x" * (MAX_TEXT + 1)]},
        {"by_name": {"a": "x" * (MAX_TEXT + 1)}},
        {"by_name": {"x" * (MAX_TEXT + 1): "a"}},
        {"began": "x" * (MAX_TEXT + 1)},
    ],
    ids=["name", "text", "texts", "value", "key", "moment"],
)
def test_no_text_is_longer_than_anybody_reads(content: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="at most"):
        Told.model_validate(content)


@pytest.mark.parametrize(
    "text",
    ["", "2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05Z", "2026-01-02", "1970-01-01T00:00:00"],
)
def test_a_moment_is_kept_as_it_was_written(text: str) -> None:
    assert Told(began=text).began == text


@pytest.mark.parametrize(
    "text",
    [
        "<b>now</b>",
        "0001-01-01",
        "1969-12-31T23:59:59+00:00",
        "3000-01-02",
        "9999-12-31T23:59:59+00:00",
        "2026-13-01",
        "1e308",
        "2026-01-02T03:04:05+00:00<script>",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="ISO 8601"):
        Told(began=text)
