"""Figures of a cell's completed launches, from their records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from torchscale.analysis.diagnosis.signals import Signals
from torchscale.analysis.stats.estimate import geometric_half_width
from torchscale.analysis.stats.series import geometric_mean, lag1_autocorrelation, pooled_digest
from torchscale.analysis.training.bubble import bubble
from torchscale.analysis.training.decomposition import step_parts
from torchscale.analysis.training.documents import document_figures
from torchscale.analysis.training.experts import expert_figures
from torchscale.analysis.training.pooling import pooled_share
from torchscale.analysis.training.summary import Figures
from torchscale.analysis.training.telemetry import joules
from torchscale.analysis.training.throughput import (
    batch_half_width,
    batch_step_seconds,
    mean_step_seconds,
    samples_per_second,
    startup_seconds,
    steps_per_second,
)
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.exports.training import NodeTelemetry, Phases
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.steps import RankSteps
from torchscale.schema.launch.training import TrainingResult
from torchscale.util.optional import complete, optional


def training_figures(
    cell: TrainingCell, launches: Sequence[LaunchRecord], signals: Signals | None
) -> Figures:
    """Figures of launches that are all ``ok``; ``signals`` are those of all of them together."""
    results = [payload(record, TrainingResult) for record in launches]
    first = results[0]
    rates = tuple(complete(samples_per_second(result) for result in results) or ())
    rate = geometric_mean(rates) if rates else None
    tokens = first.ranks[0].tokens_per_step
    peaks = [
        peak
        for result in results
        for rank in result.ranks
        if (peak := rank.memory.peak_bytes) is not None
    ]
    half_widths = [width for result in results if (width := batch_half_width(result)) is not None]
    step = step_seconds(results)
    phases = _phases(results, step)
    energy = _joules_per_step(launches)
    tokens_per_second = samples_per_joule = parts = link = buckets = None
    samples = first.ranks[0].samples_per_step
    documents = document_figures(cell, results)
    if tokens is not None and rate is not None and samples is not None:
        tokens_per_second = rate * tokens / samples
    if documents is not None and rate is not None:
        tokens_per_second = rate * documents.real_tokens_per_step / cell.global_batch_size
    if energy and rate is not None:
        samples_per_joule = cell.global_batch_size / energy
    if signals is not None:
        parts, link = step_parts(signals), signals.probe
        buckets = optional(len, signals.bucket_bytes)
    return Figures(
        samples_per_second=rate,
        samples_per_second_per_device=optional(lambda all_: all_ / cell.world_size, rate),
        tokens_per_second=tokens_per_second,
        step_mean=step,
        steps=pooled_digest(
            [result.steps.seconds for result in results if result.steps is not None]
        ),
        rank_step_means=_rank_step_means(results, step),
        phases=phases,
        half_width=max(half_widths, default=None),
        run_half_width=geometric_half_width(
            rates or [steps_per_second(result) for result in results]
        ),
        autocorrelation=lag1_autocorrelation(batch_step_seconds(first)),
        peak_memory_bytes=max(peaks, default=None),
        launch_samples_per_second=rates,
        stop_rule=first.ranks[0].stop_rule,
        measured_steps=sum(result.measured_steps for result in results),
        first_loss=first.ranks[0].first_loss,
        last_loss=first.ranks[0].last_loss,
        startup_seconds=statistics.fmean([startup_seconds(record) for record in launches]),
        parts=parts,
        backend=first.ranks[0].backend,
        link=link,
        buckets=buckets,
        bubble=bubble(cell, idle=phases.bubble, forward=phases.forward, backward=phases.backward),
        compile_seconds=_compile_seconds(results),
        device=first.ranks[0].device.name,
        on_cuda=first.ranks[0].device.kind == "cuda",
        experts=expert_figures(first),
        documents=documents,
        joules_per_step=energy,
        samples_per_joule=samples_per_joule,
        telemetry=launches[0].telemetry,
        nodes=tuple(
            NodeTelemetry(node.hostname, telemetry)
            for node, telemetry in zip(
                launches[0].nodes, launches[0].machine_telemetry, strict=False
            )
        ),
    )


def step_seconds(results: Sequence[TrainingResult]) -> float:
    """A cell's mean step: the geometric mean over launches."""
    return geometric_mean([mean_step_seconds(result) for result in results])


def _joules_per_step(launches: Sequence[LaunchRecord]) -> float | None:
    """Geometric mean over launches; ``None`` where one was not read, or took nothing."""
    energies = []
    for record in launches:
        total = joules(record.machine_telemetry)
        if not total:
            return None
        energies.append(total / payload(record, TrainingResult).measured_steps)
    return geometric_mean(energies)


def _compile_seconds(launches: Sequence[TrainingResult]) -> float | None:
    slowest = [
        max(seconds)
        for result in launches
        if (
            seconds := [
                s
                for rank in result.ranks
                if rank.setup is not None and (s := rank.setup.compile_seconds) is not None
            ]
        )
    ]
    if not slowest:
        return None
    return statistics.fmean(slowest)


def _rank_step_means(launches: Sequence[TrainingResult], step: float) -> tuple[float, ...]:
    """Mean step of each rank: its share of the group's step in each launch, times the cell's step;
    empty where launches have other ranks."""
    by_launch = []
    for result in launches:
        group = mean_step_seconds(result)
        by_launch.append([mean / group for mean in result.rank_steps.mean])
    if len({len(shares) for shares in by_launch}) > 1:
        return ()
    return tuple(statistics.fmean(shares) * step for shares in zip(*by_launch, strict=True))


def _phases(launches: Sequence[TrainingResult], step: float) -> Phases:
    def seconds(read: Callable[[RankSteps], Sequence[float | None]]) -> float | None:
        share = pooled_share(launches, read)
        if share is None:
            return None
        return share * step

    return Phases(
        data_wait=seconds(lambda steps: steps.mean_data_wait) or 0.0,
        forward=seconds(lambda steps: steps.mean_forward),
        backward=seconds(lambda steps: steps.mean_backward),
        optimizer=seconds(lambda steps: steps.mean_optimizer),
        sync=seconds(lambda steps: steps.mean_sync),
        bubble=seconds(lambda steps: steps.mean_bubble),
        compute=seconds(lambda steps: steps.mean_compute),
    )
