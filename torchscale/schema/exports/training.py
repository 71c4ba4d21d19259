"""Figures of training that analysis computes and reports publish."""

from __future__ import annotations

from typing import Literal

from pydantic import computed_field
from pydantic.dataclasses import dataclass

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.base import PUBLISHED
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.telemetry import Telemetry


@dataclass(frozen=True, config=PUBLISHED)
class Phases:
    """Mean time of a step's phases over ranks and launches; they add up to the mean step."""

    data_wait: float
    forward: float | None
    """Null in a user's script, as the passes and the optimizer that follow: see ``compute``."""
    backward: float | None
    """Contains the gradient synchronization where ``sync`` is null."""
    optimizer: float | None
    sync: float | None = None
    """Gradient synchronization that no compute hides."""
    bubble: float | None = None
    """Idle time of a pipeline's stages."""
    compute: float | None = None
    """Passes and optimizer of a user's script, which are not told apart."""


@dataclass(frozen=True, config=PUBLISHED)
class Parts:
    """The mean step by what it is spent on."""

    compute: float
    """Forward, backward and optimizer."""
    data_wait: float
    straggler_wait: float
    """Waiting for ranks that arrive later at the gradient synchronization."""
    transfer: float
    """Gradient synchronization that no compute hides, once all ranks have arrived."""
    step: float

    @property
    def rest(self) -> float:
        """Measured step minus the parts."""
        return self.step - self.compute - self.data_wait - self.straggler_wait - self.transfer


@dataclass(frozen=True, config=PUBLISHED)
class Bubble:
    """Shares of a pipeline's passes in which its stages are idle."""

    measured: float
    computed: float
    """What the schedule makes unavoidable."""


@dataclass(frozen=True, config=PUBLISHED)
class DocumentFigures:
    """Documents of different lengths: means per step, of all copies of the model together."""

    real_tokens_per_step: float
    """Without padding."""
    computed_tokens_per_step: float
    """With padding."""
    document_pairs_per_step: float
    """Squared lengths of the documents, added up."""

    @computed_field  # type: ignore[prop-decorator] # mypy knows no decorators of properties
    @property
    def padding_share(self) -> float:
        """Share of the computed tokens that are padding."""
        return 1 - self.real_tokens_per_step / self.computed_tokens_per_step

    def work_share(self, cell: TrainingCell, flops: FlopCount) -> float | None:
        """Operations that the documents of a step need, over those of as many samples of full
        length: of each document a part grows with its length, and attention with the square of it.
        ``None`` where the parts were not counted."""
        length, attention = cell.model_options.get("sequence_length"), flops.attention_share
        if not isinstance(length, int) or attention is None:
            return None
        linear = (1 - attention) * self.real_tokens_per_step / length
        squared = attention * self.document_pairs_per_step / length**2
        return (linear + squared) / cell.global_batch_size


@dataclass(frozen=True, config=PUBLISHED)
class NodeTelemetry:
    """What was read of one node during the first launch; ``None`` where nothing was."""

    hostname: str
    telemetry: Telemetry | None


Bound = Literal["compute", "memory", "overhead", "communication", "input"]


@dataclass(frozen=True, config=PUBLISHED)
class Peak:
    """The FLOP/s that a device can reach, and where that number is from."""

    flops_per_second: float
    source: str


@dataclass(frozen=True, config=PUBLISHED)
class Compute:
    """A cell's FLOP/s against what its device can reach."""

    flops_per_step: float
    flops_per_second: float
    """Rate of one device."""
    mfu: float | None
    """Model FLOPs utilization, a share of the peak."""
    hfu: float | None
    """Share of the peak, with recomputed activations."""
    peak: Peak | None
    intensity: float | None
    """FLOPs for each byte that the operators read and write."""
    passes_flops_per_second: float | None
    """During the forward and backward pass."""
    roof: float | None
    """FLOP/s that the roofline allows at this intensity."""
    bound: Bound | None
    """``overhead``: far below the roof, so neither compute nor memory."""
    headroom: float | None
    roof_source: str


@dataclass(frozen=True, config=PUBLISHED)
class Decomposition:
    """Seconds a step beyond the smallest world size of the same workload, by cause."""

    baseline_world_size: int
    ideal: float
    """The step that perfect scaling would give."""
    compute: float
    data_wait: float
    straggler_wait: float
    exposed_communication: float
    unexplained: float
    step: float
    """Measured step: the sum of the others."""
