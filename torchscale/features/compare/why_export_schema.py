"""The JSON of explained differences: the parts of a step, their likeliest causes, and recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AliasPath, BeforeValidator, ConfigDict, Field

from torchscale.schema.exports.base import Export
from torchscale.schema.run.step_parts import OutsidePart, StepPart

ClarityName = Literal["clear", "small", "unclear"]
BasisName = Literal["measured", "only_change", "several", "none"]
FateName = Literal["new", "gone", "more calls", "fewer calls", "slower", "faster", "alike"]


class DifferenceExport(Export):
    """A condition that is not equal on all sides."""

    what: str
    values: tuple[str, ...]
    """One for each side; empty where a side lacks it."""
    deciding: bool = Field(validation_alias="forbids")
    """Whether figures are not comparable because of it (another device, another torch)."""


class SecondsExport(Export):
    """A time on both sides: means over launches, in seconds."""

    before: float = Field(validation_alias=AliasPath("difference", "before"))
    after: float = Field(validation_alias=AliasPath("difference", "after"))
    difference: float = Field(validation_alias="seconds")
    """``after`` less ``before``."""
    interval: tuple[float, float] | None = Field(
        validation_alias=AliasPath("difference", "interval")
    )
    """95 % of the difference; null with fewer than two launches on a side."""
    p_corrected: float | None = Field(validation_alias="adjusted_p")
    """p-value after Holm's correction over the parts that sum with this one; null where nothing was
    tested."""
    clarity: ClarityName
    """Beyond noise and the threshold; within the threshold; neither is shown."""


class StepPartExport(SecondsExport):
    """A part of the mean step."""

    part: StepPart = Field(validation_alias="name")


class OutsidePartExport(SecondsExport):
    """A part of a launch outside its measured steps."""

    part: OutsidePart = Field(validation_alias="name")


class RankPartExport(SecondsExport):
    """The share of one rank in what slower ranks add."""

    rank: int = Field(validation_alias="name")


class CauseExport(Export):
    """The likeliest cause of a part that is clear, or an abstention."""

    part: StepPart = Field(validation_alias=AliasPath("part", "name"))
    basis: BasisName
    """Measured beside the steps; the only recorded change that can be behind it; several can, or
    none (abstained)."""
    text: str
    advice: str
    candidates: tuple[str, ...]
    """Names of the changes that can be behind it."""


class ProbeExport(Export):
    """What launches noticed of the exchange of gradients: means of each side, null where a launch
    did not."""

    gradient_bytes: tuple[float, float] | None
    """Exchanged in a step."""
    buckets: tuple[float, float] | None
    link_seconds: tuple[float, float] | None
    """All-reduce of them in large buckets, with nothing else running."""


class WhyExport(Export):
    """The difference of a training cell's mean step, in parts that sum to it."""

    cell_id: str = Field(validation_alias=AliasPath("why", "cell", "cell", "cell", "id"))
    other_cell_id: str | None = Field(validation_alias=AliasPath("why", "cell", "other_id"))
    launches: tuple[int, int] = Field(validation_alias=AliasPath("why", "launches"))
    step: SecondsExport = Field(validation_alias=AliasPath("why", "step"))
    parts: tuple[StepPartExport, ...] = Field(validation_alias=AliasPath("why", "parts"))
    """Their differences sum to that of ``step``."""
    ranks: tuple[RankPartExport, ...] = Field(validation_alias=AliasPath("why", "ranks"))
    """``slower_ranks`` by rank; empty where the sides have other ranks."""
    later_in: tuple[StepPartExport, ...] = Field(validation_alias=AliasPath("why", "later_in"))
    """By phase: how much longer ranks take than the typical rank, mean over ranks."""
    outside: SecondsExport | None = Field(validation_alias=AliasPath("why", "outside"))
    """A launch without its measured steps; null where it is not known."""
    outside_parts: tuple[OutsidePartExport, ...] = Field(
        validation_alias=AliasPath("why", "outside_parts")
    )
    conditions: tuple[str, ...] = Field(
        validation_alias=AliasPath("why", "disturbance", "conditions")
    )
    """Under which one side was measured."""
    disturbance: tuple[float | None, float | None] = Field(
        validation_alias=AliasPath("why", "disturbance", "ends")
    )
    """Seconds of the difference that these may have made, at least and at most; null where nothing
    bounds it."""
    probe: ProbeExport = Field(validation_alias=AliasPath("why", "probe"))
    changes: tuple[DifferenceExport, ...]
    """What differs between both sides of this cell."""
    causes: tuple[CauseExport, ...]
    """One for each part that is clear, the largest first."""


class CellWithoutPartsExport(Export):
    """A training cell that was compared and whose parts are not known."""

    cell_id: str
    reason: str


class OperatorExport(Export):
    """An operator, or a kernel of a device, in a recorded step: means over ranks and steps."""

    name: str
    """With the shapes of its inputs where torch.profiler recorded an operator."""
    fate: FateName
    calls: tuple[float, float]
    before: float = Field(validation_alias=AliasPath("before", "seconds"))
    """Seconds of all calls of a step."""
    after: float = Field(validation_alias=AliasPath("after", "seconds"))
    difference: float = Field(validation_alias="seconds")


class RecordedStepExport(Export):
    """The mean step of a recording; seconds. Operators, exposed communication and rest sum to it."""

    steps: int
    seconds: float
    communication: float
    """Exposed: no operator hides it."""
    rest: float
    """Gaps, less what runs at the same time."""
    ranks: int
    """Ranks that it is the mean of."""
    job_ranks: int
    """Ranks of the job, as far as the recording tells."""


class RecordingExport(Export):
    """Two recordings of one cell."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    label: str
    problem: str
    """Why they could not be compared; empty where they could."""
    before: RecordedStepExport | None = Field(
        default=None, validation_alias=AliasPath("comparison", "before")
    )
    after: RecordedStepExport | None = Field(
        default=None, validation_alias=AliasPath("comparison", "after")
    )
    operators: tuple[OperatorExport, ...] = Field(
        default=(), validation_alias=AliasPath("comparison", "operators")
    )
    """The largest difference first."""
    collectives: tuple[OperatorExport, ...] = Field(
        default=(), validation_alias=AliasPath("comparison", "collectives")
    )
    """Exposed communication by operation and size, likewise."""


def _by_cell(reasons: Mapping[str, str]) -> tuple[CellWithoutPartsExport, ...]:
    return tuple(
        CellWithoutPartsExport(cell_id=name, reason=reason) for name, reason in reasons.items()
    )


class PairWhyExport(Export):
    """A pair explained."""

    cells: tuple[WhyExport, ...]
    """The largest relative difference first."""
    without: Annotated[tuple[CellWithoutPartsExport, ...], BeforeValidator(_by_cell)]
    recordings: tuple[RecordingExport, ...]
    """Of cells that both sides recorded."""
