"""The JSON of ``report --format json`` and ``benchmark --json``.

Times are seconds, sizes bytes, rates per second; null means not measured.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AliasPath, Field

from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.base import RESULTS_SCHEMA_VERSION, Export, PublishedDocument
from torchscale.schema.exports.experts import ExpertFigures
from torchscale.schema.exports.machine import AnyMachineExport
from torchscale.schema.exports.training import (
    Bubble,
    Compute,
    Decomposition,
    DocumentFigures,
    NodeTelemetry,
    Parts,
    Phases,
)
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.steps import Digest, StopRule
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.launch.transport import Transport
from torchscale.schema.node.environment import Environment
from torchscale.schema.profiles.finding import Diagnosis
from torchscale.schema.state import State


class SessionExport(Export):
    """A command that measured part of the run, and the machine as it was then."""

    started_at: str = Field(validation_alias=AliasPath("session", "started_at"))
    """UTC, ISO 8601."""
    tool_version: str = Field(validation_alias=AliasPath("session", "tool_version"))
    environment: Environment = Field(validation_alias=AliasPath("session", "environment"))
    launches: int
    """Launches with figures that it measured."""
    changed: tuple[str, ...]
    """Names of conditions that differ from the session before."""


class FiguresExport(Export):
    """What a cell measured."""

    samples_per_second: float | None
    """Rate of all devices together, geometric mean over launches; null for a user's script that is
    not told its batch size."""
    samples_per_second_per_device: float | None
    tokens_per_second: float | None
    step_mean: float
    """Mean of the group's step: samples of a step ÷ ``samples_per_second``."""
    step_p50: float = Field(validation_alias=AliasPath("steps", "p50"))
    """Over all steps of all launches, per step the slowest rank; so are the other quantiles."""
    step_p95: float = Field(validation_alias=AliasPath("steps", "p95"))
    step_p99: float = Field(validation_alias=AliasPath("steps", "p99"))
    step_maximum: float = Field(validation_alias=AliasPath("steps", "maximum"))
    rank_step_means: tuple[float, ...]
    """Mean step of each rank, over launches."""
    half_width: float | None
    """Relative half width of the 95 % interval of the mean step, from the batches of a launch; the
    widest launch's."""
    run_half_width: float | None
    """Half width of the interval of ``samples_per_second``, from launch to launch; null for a
    single launch."""
    samples_per_second_low: float | None = Field(
        validation_alias=AliasPath("samples_per_second_ends", 0)
    )
    """Lower end of the 95 % interval: over launches, or of a single launch over its batches of
    steps."""
    samples_per_second_high: float | None = Field(
        validation_alias=AliasPath("samples_per_second_ends", 1)
    )
    """Upper end of the interval; null where it has none."""
    step_mean_low: float | None = Field(validation_alias=AliasPath("step_mean_ends", 0))
    """Lower end of the interval of ``step_mean``: that of ``samples_per_second``, inverted."""
    step_mean_high: float | None = Field(validation_alias=AliasPath("step_mean_ends", 1))
    autocorrelation: float | None
    """Lag 1, of the batches' means."""
    peak_memory_bytes: int | None
    launch_samples_per_second: tuple[float, ...]
    """Rate of each launch."""
    measured_steps: int
    """Number of steps of all launches together."""
    first_loss: float | None
    last_loss: float | None
    startup_seconds: float
    """Wall time of a launch outside warm-up and measurement."""
    compile_seconds: float | None
    device: str
    joules_per_step: float | None
    """Energy of all GPUs, geometric mean over launches."""
    samples_per_joule: float | None
    stop_rule: StopRule
    """What ended the first launch's measurement."""
    phases: Phases
    parts: Parts | None
    bubble: Bubble | None
    """Idle share of a pipeline."""
    flops: FlopCount | None
    experts: ExpertFigures | None
    """Of models with experts."""
    documents: DocumentFigures | None
    """Of samples of different lengths (``data.lengths``)."""
    telemetry: Telemetry | None
    """Telemetry of the first launch, on its first node."""
    nodes: tuple[NodeTelemetry, ...]
    """The same for each node of a launch over several."""
    steps: Digest
    """Step times of all launches together; ``values`` are all of them in ascending order, or 500 at
    equal distances."""


class EfficiencyExport(Export):
    """Throughput against perfect scaling from the smallest world size of the same workload."""

    value: float
    baseline_world_size: int
    interval: tuple[float, float] | None
    """95 %, from launch to launch; null where a side has a single launch."""
    flags: tuple[str, ...]
    """Flags of the baseline's measurement."""


class TrainingCellExport(Export):
    """A cell that trained a model."""

    cell_id: str = Field(validation_alias=AliasPath("cell", "id"))
    cell: TrainingCell
    state: State
    reason: str
    """Why it is not ``ok``; empty where it is."""
    launches: int
    """Completed launches."""
    hosts: tuple[str, ...] = Field(validation_alias=AliasPath("facts", "hosts"))
    """Machines that its ranks ran on, by name."""
    transport: Transport | None = Field(validation_alias=AliasPath("facts", "transport"))
    """By what data moved between ranks; null of a single rank."""
    sessions: int
    """Number of sessions that these are from: commands that measured, such as a sweep and its
    resumption."""
    planned_launches: int | None
    """Launches that were asked for: more than ``launches`` where the state is ``partial``."""
    flags: tuple[str, ...]
    """Cautions of the measurement, such as ``noisy``."""
    autopsy: Autopsy | None = Field(validation_alias=AliasPath("facts", "autopsy"))
    """Autopsy of a launch that made no progress, or whose ranks called collectives that do not fit
    together."""
    figures: FiguresExport | None
    """Null unless the state is ``ok`` or ``partial``; of the completed launches."""
    compute: Compute | None
    """Null where the model's operations could not be counted."""
    flops_unknown: str = Field(validation_alias="compute_unknown")
    """Why a cell with figures has no ``compute``; empty where it has."""
    decomposition: Decomposition | None
    diagnosis: Diagnosis | None
    efficiency: EfficiencyExport | None


class ReportExport(Export):
    """A run: its environment, and each cell with its figures."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    tool_version: str
    """torchscale that began the run."""
    run: str
    """Name of the run's directory."""
    experiment_name: str
    headline: str
    """The result in one sentence, as the report begins."""
    environment: Environment
    """The environment as it was when the run began."""
    sessions: tuple[SessionExport, ...]
    """Commands that measured, oldest first."""
    problems: tuple[str, ...]
    """Files that could not be read and were left out."""
    cells: tuple[TrainingCellExport, ...]
    machine: tuple[AnyMachineExport, ...]
    """Cells that measured the machine itself."""


DOCUMENT = PublishedDocument(
    ReportExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale report",
    "A run with the figures of every cell: `torchscale report --format json`, `torchscale "
    "benchmark --json`.",
)
