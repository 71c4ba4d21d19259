"""What came of a training cell: its figures over all launches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchscale.analysis.diagnosis.signals import LinkProbe
from torchscale.analysis.summary.facts import NO_FACTS, CellFacts
from torchscale.analysis.training.flags import Flag
from torchscale.analysis.training.scaling import Efficiency
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.experts import ExpertFigures
from torchscale.schema.exports.training import (
    Bubble,
    Compute,
    Decomposition,
    DocumentFigures,
    NodeTelemetry,
    Parts,
    Phases,
)
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.steps import Digest, StopRule
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Diagnosis
from torchscale.schema.state import State
from torchscale.schema.watch.report import WatchReport
from torchscale.util.interval_text import Interval, finite_ends
from torchscale.util.units import format_rate


@dataclass(frozen=True)
class Figures:
    """What a cell's completed launches measured. Definitions: ``docs/method.md``, *Figures of a
    cell*.

    Attributes:
        samples_per_second: Rate of the group: global samples ÷ summed wall time of the batches;
            geometric mean over launches; ``None`` for a script whose samples are not known.
        samples_per_second_per_device: The same ÷ world size.
        tokens_per_second: Rate of the group, without padding; ``None`` where samples have no tokens.
        step_mean: Seconds of the group's step: samples of a step ÷ ``samples_per_second``.
        steps: All group steps of all launches (per step the slowest rank); quantiles are over all
            of them.
        rank_step_means: Mean step of each rank, over launches.
        phases: Where a step goes.
        half_width: Half width of the interval of the mean step, 95 %, relative, from the batches
            within a launch; the widest launch's.
        run_half_width: Half width of the interval of ``samples_per_second``, from launch to launch;
            ``None`` for a single launch.
        autocorrelation: Lag-1, of the first launch's batches; near 0 the interval holds, near 0.8
            it covers about 85 %.
        peak_memory_bytes: Largest over ranks and launches: allocator (CUDA) or growth of resident
            memory (CPU).
        launch_samples_per_second: Rate of each launch; empty where samples are not known.
        stop_rule: What ended the first launch's measurement.
        measured_steps: Number of steps of all launches together.
        first_loss, last_loss: Rank 0, first launch.
        startup_seconds: Mean wall time of a launch outside warm-up and measurement.
        parts: The mean step by what it is spent on; ``None`` where gradient sync was not measured.
        backend: Over which ranks exchange gradients; ``None`` for a single one.
        link: All-reduces of the gradients with nothing else running, a typical launch's; ``None``
            where the gradients are not sent in buckets.
        buckets: Their number.
        bubble: Idle share of a pipeline, as measured and as its schedule makes unavoidable.
        compile_seconds: What torch's compiler took, the slowest rank's, mean over launches;
            ``None`` where nothing is compiled.
        device: Rank 0's, by name.
        on_cuda: Whether it is a GPU, so that ``peak_memory_bytes`` is the allocator's.
        flops: Operations of the model, from any launch of the run that counted them.
        experts: How evenly the experts of the model are used; ``None`` for other models.
        documents: Tokens of a step, with and without padding; ``None`` where samples have one
            length.
        joules_per_step, samples_per_joule: Energy figures of all GPUs, geometric mean over
            launches; ``None`` where the driver does not say.
        telemetry: Telemetry of the first launch, on its first node.
        nodes: Host name and telemetry of each node of the first launch; empty for a single node.
    """

    samples_per_second: float | None
    samples_per_second_per_device: float | None
    tokens_per_second: float | None
    step_mean: float
    steps: Digest
    rank_step_means: tuple[float, ...]
    phases: Phases
    half_width: float | None
    run_half_width: float | None
    autocorrelation: float | None
    peak_memory_bytes: int | None
    launch_samples_per_second: tuple[float, ...]
    stop_rule: StopRule
    measured_steps: int
    first_loss: float | None
    last_loss: float | None
    startup_seconds: float
    parts: Parts | None = None
    backend: str | None = None
    link: LinkProbe | None = None
    buckets: int | None = None
    bubble: Bubble | None = None
    compile_seconds: float | None = None
    device: str = ""
    on_cuda: bool = False
    flops: FlopCount | None = None
    experts: ExpertFigures | None = None
    documents: DocumentFigures | None = None
    joules_per_step: float | None = None
    samples_per_joule: float | None = None
    telemetry: Telemetry | None = None
    nodes: tuple[NodeTelemetry, ...] = ()

    @property
    def gpus(self) -> tuple[GpuUse, ...]:
        """What was read of the GPUs of all nodes in the first launch."""
        machines = [node.telemetry for node in self.nodes] or [self.telemetry]
        return tuple(
            use for telemetry in machines if telemetry is not None for use in telemetry.gpus
        )

    @property
    def interval_factors(self) -> Interval | None:
        """Ends of the 95 % interval of throughput, as factors of it: from launch to launch
        (geometric), or of a single launch from the mean step of its batches of steps (arithmetic,
        so without an upper end where it reaches 0)."""
        if self.run_half_width is not None:
            return 1 / (1 + self.run_half_width), 1 + self.run_half_width
        if self.half_width is None:
            return None
        low = 1 / (1 + self.half_width)
        if self.half_width >= 1:
            return low, math.inf
        return low, 1 / (1 - self.half_width)

    def rate_interval(self, rate: float | None) -> Interval | None:
        """95 % interval of a rate that is a multiple of the throughput, in its unit."""
        factors = self.interval_factors
        if rate is None or factors is None:
            return None
        return rate * factors[0], rate * factors[1]

    @property
    def samples_per_second_ends(self) -> tuple[float | None, float | None]:
        """Ends of the interval of :attr:`samples_per_second`, as files have them: ``None`` where
        there is none."""
        return finite_ends(self.rate_interval(self.samples_per_second))

    @property
    def step_mean_ends(self) -> tuple[float | None, float | None]:
        """Ends of the interval of :attr:`step_mean`, as files have them: ``None`` where there is
        none."""
        return finite_ends(self.step_interval)

    @property
    def step_interval(self) -> Interval | None:
        """95 % interval of ``step_mean``, in seconds: that of the throughput, inverted."""
        factors = self.interval_factors
        if factors is None:
            return None
        return self.step_mean / factors[1], self.step_mean / factors[0]


@dataclass(frozen=True)
class TrainingSummary:
    """A planned cell and what came of it. ``figures`` is ``None`` unless the state is ``ok`` or
    ``partial``.

    Of ``planned_launches``, ``launches`` are completed. ``decomposition`` needs a measured smaller
    count of its series, ``diagnosis`` the always-on signals of a launch, ``compute`` a model whose
    operations can be counted; ``counted`` is set where this cell's own launches counted them,
    ``profile`` where it was recorded. ``sessions``: in how many commands' time its launches lie.
    ``flops_unknown``: why its own launches could not count the model's operations. ``watched``:
    what ``watch`` saw of a user's program; a watched job has its findings and its speed from there,
    and figures where it failed, too.
    """

    cell: TrainingCell
    state: State
    reason: str
    launches: int
    figures: Figures | None = None
    flags: tuple[Flag, ...] = ()
    efficiency: Efficiency | None = None
    decomposition: Decomposition | None = None
    diagnosis: Diagnosis | None = None
    compute: Compute | None = None
    facts: CellFacts = NO_FACTS
    counted: FlopCount | None = None
    profile: ProfileAnalysis | None = None
    planned_launches: int | None = None
    sessions: int = 1
    flops_unknown: str = ""
    watched: WatchReport | None = None

    @property
    def compute_unknown(self) -> str:
        """Why it has no ``compute``, as far as its own launches say; empty where it has."""
        if self.compute is not None:
            return ""
        return self.flops_unknown

    def __repr__(self) -> str:
        """The cell, its state and its throughput: with all its figures it would be pages."""
        rate = ""
        if self.figures is not None and self.figures.samples_per_second is not None:
            rate = f", {format_rate(self.figures.samples_per_second)} samples/s"
        return f"TrainingSummary({self.cell.id}, {self.state.value}{rate})"
