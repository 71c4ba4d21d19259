"""What came of a training cell: its figures over all launches, and what the diagnosis says of them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.stats.series import lag1_autocorrelation, relative_half_width
from torchscale.analysis.summary.facts import NO_FACTS, CellFacts
from torchscale.analysis.training.bubble import Bubble, bubble
from torchscale.analysis.training.decomposition import Decomposition, Parts, launch_parts
from torchscale.analysis.training.flags import Flag
from torchscale.analysis.training.roofline import Compute
from torchscale.analysis.training.scaling import Efficiency
from torchscale.analysis.training.signals import launch_signals
from torchscale.analysis.training.telemetry import joules
from torchscale.analysis.training.throughput import batch_step_seconds, samples_per_second, startup_seconds
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import FlopCount
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.steps import Digest, StopRule
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.finding import Diagnosis
from torchscale.schema.state import State


@dataclass(frozen=True)
class Phases:
    """Mean seconds of a step's phases, averaged over ranks and launches. They add up to the mean step.

    ``sync`` is exposed exchange; where it is ``None``, ``backward`` contains it. ``bubble`` is of pipelines alone.
    """

    data_wait: float
    forward: float
    backward: float
    optimizer: float
    sync: float | None = None
    bubble: float | None = None


@dataclass(frozen=True)
class Figures:
    """What an ``ok`` cell measured.

    Attributes:
        samples_per_second: Of the group: global samples ÷ summed wall time of the batches; mean over launches.
        samples_per_second_per_device: The same ÷ world size.
        tokens_per_second: Of the group; ``None`` where samples have no tokens.
        step_p50, step_p95, step_p99: Seconds of the group's step (per step the slowest rank); mean over launches.
        step_maximum: The longest of all launches, in seconds.
        steps: Digest of the first launch's group steps.
        rank_p50: Median step of each rank, first launch.
        phases: Where a step goes.
        half_width: Of the mean step, 95 %, relative, from the batches within a launch; the widest launch's.
        run_half_width: The same from launch to launch; ``None`` for a single launch.
        autocorrelation: Lag-1, of the batches; near 0 the interval holds, near 0.8 it covers about 85 %.
        peak_memory_bytes: Largest over ranks and launches: allocator (CUDA) or growth of resident memory (CPU).
        launch_samples_per_second: Of each launch.
        stop_rule: What ended the first launch's measurement.
        measured_steps: Of the first launch.
        first_loss, last_loss: Rank 0, first launch.
        startup_seconds: Mean wall time of a launch outside warm-up and measurement.
        parts: The mean step by what it is spent on; ``None`` where the exchange was not measured.
        bubble: Of a pipeline, as measured and as its schedule makes unavoidable.
        compile_seconds: What torch's compiler took, the slowest rank's, mean over launches; ``None`` where nothing is
            compiled.
        device: Rank 0's, by name.
        flops: Of the model, from any launch of the run that counted them.
        joules_per_step, samples_per_joule: Of all GPUs, mean over launches; ``None`` where the driver does not say.
        telemetry: Of the first launch.
    """

    samples_per_second: float
    samples_per_second_per_device: float
    tokens_per_second: float | None
    step_p50: float
    step_p95: float
    step_p99: float
    step_maximum: float
    steps: Digest
    rank_p50: tuple[float, ...]
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
    bubble: Bubble | None = None
    compile_seconds: float | None = None
    device: str = ""
    flops: FlopCount | None = None
    joules_per_step: float | None = None
    samples_per_joule: float | None = None
    telemetry: Telemetry | None = None


@dataclass(frozen=True)
class TrainingSummary:
    """A planned cell and what came of it. ``figures`` is ``None`` unless the state is ``ok``.

    ``decomposition`` needs a measured smaller count of its series, ``diagnosis`` the always-on signals of a launch,
    ``compute`` a model whose operations can be counted; ``counted`` is set where this cell's own launches counted them,
    ``profile`` where it was recorded.
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


def diagnose_launches(cell: TrainingCell, launches: Sequence[TrainingResult]) -> Diagnosis | None:
    """Of one launch what it says; of several, what more than half of them say, with the first one's costs."""
    judged = [diagnose(signals) for result in launches if (signals := launch_signals(result)) is not None]
    if not judged or cell.world_size == 1:
        return None
    seen = Counter((finding.kind, finding.rank) for diagnosis in judged for finding in diagnosis.findings)
    first = {(finding.kind, finding.rank): finding for diagnosis in reversed(judged) for finding in diagnosis.findings}
    kept = [finding for key, finding in first.items() if seen[key] > len(judged) / 2]
    kept.sort(key=lambda finding: -finding.cost_percent)
    named = {finding.kind for finding in kept}
    abstained = dict.fromkeys(item for diagnosis in judged for item in diagnosis.abstentions if item.kind not in named)
    return Diagnosis(findings=tuple(kept), abstentions=tuple(abstained))


def training_figures(cell: TrainingCell, launches: Sequence[LaunchRecord]) -> Figures:
    """Figures of launches that are all ``ok``."""
    results = [payload(record, TrainingResult) for record in launches]
    first = results[0]
    assert first.steps is not None  # noqa: S101 - the caller checked; this tells the type checker
    rates = tuple(samples_per_second(result) for result in results)
    rate = statistics.fmean(rates)
    digests = [result.steps.seconds for result in results if result.steps is not None]
    means = [batch_step_seconds(result) for result in results]
    half_widths = [width for series in means if (width := relative_half_width(series)) is not None]
    peaks = [peak for result in results for rank in result.ranks if (peak := rank.memory.peak_bytes) is not None]
    tokens = first.ranks[0].tokens_per_step
    phases = _phases(results)
    totals = [
        (joules(record.telemetry), result.measured_steps) for record, result in zip(launches, results, strict=True)
    ]
    energies = [total / steps for total, steps in totals if total is not None]
    energy = statistics.fmean(energies) if len(energies) == len(launches) else None
    return Figures(
        samples_per_second=rate,
        samples_per_second_per_device=rate / cell.world_size,
        tokens_per_second=None if tokens is None else rate * tokens / first.ranks[0].samples_per_step,
        step_p50=statistics.fmean([digest.p50 for digest in digests]),
        step_p95=statistics.fmean([digest.p95 for digest in digests]),
        step_p99=statistics.fmean([digest.p99 for digest in digests]),
        step_maximum=max(digest.maximum for digest in digests),
        steps=digests[0],
        rank_p50=tuple(steps.seconds.p50 for steps in first.rank_steps),
        phases=phases,
        half_width=max(half_widths, default=None),
        run_half_width=relative_half_width(rates),
        autocorrelation=lag1_autocorrelation(means[0]),
        peak_memory_bytes=max(peaks, default=None),
        launch_samples_per_second=rates,
        stop_rule=first.ranks[0].stop_rule,
        measured_steps=first.measured_steps,
        first_loss=first.ranks[0].first_loss,
        last_loss=first.ranks[0].last_loss,
        startup_seconds=statistics.fmean([startup_seconds(record) for record in launches]),
        parts=launch_parts(results),
        bubble=bubble(cell, idle=phases.bubble, forward=phases.forward, backward=phases.backward),
        compile_seconds=_compile_seconds(results),
        device=first.ranks[0].device.name,
        joules_per_step=energy,
        samples_per_joule=None if not energy else cell.global_batch_size / energy,
        telemetry=launches[0].telemetry,
    )


def _compile_seconds(launches: Sequence[TrainingResult]) -> float | None:
    slowest = [
        max(seconds)
        for result in launches
        if (seconds := [s for rank in result.ranks if (s := rank.setup.compile_seconds) is not None])
    ]
    return statistics.fmean(slowest) if slowest else None


def _phases(launches: Sequence[TrainingResult]) -> Phases:
    steps = [digest for result in launches for digest in result.rank_steps]
    syncs = [digest.mean_sync for digest in steps if digest.mean_sync is not None]
    bubbles = [digest.mean_bubble for digest in steps if digest.mean_bubble is not None]
    return Phases(
        data_wait=statistics.fmean([digest.mean_data_wait for digest in steps]),
        forward=statistics.fmean([digest.mean_forward for digest in steps]),
        backward=statistics.fmean([digest.mean_backward for digest in steps]),
        optimizer=statistics.fmean([digest.mean_optimizer for digest in steps]),
        sync=statistics.fmean(syncs) if len(syncs) == len(steps) else None,
        bubble=statistics.fmean(bubbles) if len(bubbles) == len(steps) else None,
    )
