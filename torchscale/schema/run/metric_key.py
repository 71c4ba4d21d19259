"""The key of a measured figure: a metric, and which of several figures of that metric it is."""

from __future__ import annotations

from typing import Literal

from pydantic import GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from torchscale.config.choices import ElementType, MatmulType, Metric, Operation
from torchscale.schema.base import Frozen
from torchscale.schema.cells.hardware import CopyKind

_PINNED: Literal["pinned"] = "pinned"
_PAGEABLE: Literal["pageable"] = "pageable"


class MetricKey(Frozen):
    """A metric of a launch; in files it is the text of :attr:`text`.

    Attributes:
        metric: Which metric.
        operation: The collective of a bus bandwidth.
        dtype: Element type of a bus bandwidth, or of a matrix product's rate.
        copy_kind: The memories between which a copy went.
        pinned: Whether the copy's host memory was pinned; ``None`` for copies that touch no host
            memory.

    Raises:
        ValueError: a text that is no key, or a field that its metric does not have.
    """

    metric: Metric
    operation: Operation | None = None
    dtype: ElementType | MatmulType | None = None
    copy_kind: CopyKind | None = None
    pinned: bool | None = None

    @property
    def detail(self) -> str:
        """Which of several figures of the metric: ``all_reduce fp32``; empty where a metric has one
        figure."""
        return " ".join(self._details())

    @property
    def text(self) -> str:
        """The key as files have it: ``throughput``, ``busbw/all_reduce/fp32``,
        ``copy/host_to_device/pinned``."""
        return "/".join((self.metric.value, *self._details()))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        del schema, handler  # the fields do not reach a file, only their text does
        return {
            "type": "string",
            "title": cls.__name__,
            "examples": ["throughput", "busbw/all_reduce/fp32"],
        }

    def _details(self) -> tuple[str, ...]:
        memory = {None: None, True: _PINNED, False: _PAGEABLE}[self.pinned]
        return tuple(
            part
            for part in (self.operation, self.dtype, self.copy_kind, memory)
            if part is not None
        )

    @model_serializer
    def _to_text(self) -> str:
        return self.text

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        match value.split("/"):
            case [Metric.BUSBW.value, operation, dtype]:
                return {"metric": Metric.BUSBW, "operation": operation, "dtype": dtype}
            case [Metric.COMPUTE.value, dtype]:
                return {"metric": Metric.COMPUTE, "dtype": dtype}
            case [Metric.COPY.value, copy_kind]:
                return {"metric": Metric.COPY, "copy_kind": copy_kind}
            case [Metric.COPY.value, copy_kind, "pinned" | "pageable" as memory]:
                return {"metric": Metric.COPY, "copy_kind": copy_kind, "pinned": memory == _PINNED}
            case [metric]:
                return {"metric": metric}
        raise ValueError(
            f"{value[:80]!r} is not the key of a metric; expected for example "
            "'busbw/all_reduce/fp32'"
        )

    @model_validator(mode="after")
    def _check_fields(self) -> MetricKey:
        given = (
            self.operation is not None,
            self.dtype is not None,
            self.copy_kind is not None,
        )
        expected = {
            Metric.BUSBW: (True, True, False),
            Metric.COMPUTE: (False, True, False),
            Metric.COPY: (False, False, True),
        }.get(self.metric, (False, False, False))
        if given != expected or (self.pinned is not None and self.metric is not Metric.COPY):
            raise ValueError(
                f"{self.text[:80]!r} does not have the parts that a key of {self.metric.value} has"
            )
        return self
