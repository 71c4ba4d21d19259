"""Hand a benchmark to a scheduler: prepare it, submit it, follow it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from torchscale.config.choices import SubmitEngine
from torchscale.config.experiment import Experiment
from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.submit.engine import (
    Engine,
    IndexedJobOptions,
    JobOptions,
    KubernetesOptions,
    Preparation,
    SlurmOptions,
    SubmitOptions,
    SubmittedJob,
    TrainJobOptions,
)
from torchscale.features.cluster.submit.kubernetes_engine import (
    prepare_indexed_job,
    prepare_train_job,
)
from torchscale.features.cluster.submit.slurm_engine import SlurmEngine
from torchscale.report.text.words import plural

__all__ = [
    "Engine",
    "IndexedJobOptions",
    "JobOptions",
    "KubernetesOptions",
    "SlurmOptions",
    "SubmitOptions",
    "SubmittedJob",
    "TrainJobOptions",
    "check_carried",
    "follow",
    "prepare",
    "warnings_of",
]

_POLL_SECONDS = 5.0
"""Seconds between two questions to a scheduler, which serves the whole cluster."""
_PATIENCE_SECONDS = 900.0
"""A controller that is restarted, or fails over, is back within minutes."""


@dataclass(frozen=True)
class _EngineKind:
    """How an engine is made, and which groups of :class:`SubmitOptions` it knows beside ``job``."""

    prepare: Preparation
    groups: tuple[str, ...]


_ENGINES: Mapping[SubmitEngine, _EngineKind] = {
    SubmitEngine.SLURM: _EngineKind(SlurmEngine, ("slurm",)),
    SubmitEngine.KUBERNETES: _EngineKind(prepare_train_job, ("kubernetes", "train_job")),
    SubmitEngine.KUBERNETES_JOB: _EngineKind(prepare_indexed_job, ("kubernetes", "indexed_job")),
}


def prepare(
    engine: SubmitEngine,
    experiment: Experiment,
    options: SubmitOptions,
    output_dir: Path | None = None,
) -> Engine:
    """A benchmark, ready to be rendered or submitted; nothing is written or started.

    What a job is made from holds no secret: variables of ``--env`` and ``launch.env`` that carry
    one reach it another way (:attr:`~torchscale.features.cluster.submit.engine.Engine.by_hand`).

    Raises:
        UsageError: an option is missing, wrong, or of another engine.
    """
    kind = _ENGINES[engine]
    _refuse_options_of_others(engine, options)
    return kind.prepare(experiment, options, output_dir)


def warnings_of(experiment: Experiment, job: JobOptions) -> list[str]:
    """What of the job the experiment would not use, or would need: what is asked for, what is used,
    what to do."""
    asked = None
    if job.gpus_per_node is not None:
        asked = job.nodes * job.gpus_per_node
    if experiment.device == "cpu" and asked is not None:
        return [
            f"the job asks for {plural(asked, 'GPU')}, and the config trains on CPUs (device: "
            "cpu): leave --gpus-per-node out, or give --device=cuda"
        ]
    most = _most_devices(experiment)
    if most is None:
        return []
    if asked is not None and most < asked:
        return [
            f"the job asks for {plural(asked, 'GPU')} ({job.nodes} × {job.gpus_per_node}), and the "
            f"config uses {most} at most (gpu_counts): {asked - most} would idle. Ask for fewer, "
            f"or give --gpu_counts=[…,{asked}]"
        ]
    if asked is not None and most > asked:
        return [
            f"the config has cells of {plural(most, 'GPU')} (gpu_counts), and the job asks for "
            f"{asked}: those cells are skipped. Ask for more, or leave these counts out"
        ]
    if most < job.nodes:
        return [
            f"the job asks for {plural(job.nodes, 'node')}, and the config uses "
            f"{plural(most, 'device')} at most (gpu_counts): {job.nodes - most} would idle"
        ]
    return []


def check_carried(experiment: Experiment) -> None:
    """Check that a job gets all that the config holds.

    Raises:
        UsageError: the config holds secrets that only the ranks of this process would get.
    """
    if experiment.hidden:
        raise UsageError(
            "the config has secrets in options of models, data.data_dir or export; a job would "
            f"read {', '.join(experiment.hidden)} in their place",
            hint="take them from variables, which launch.env sets",
        )


def _most_devices(experiment: Experiment) -> int | None:
    """The largest count of devices of any cell; ``None`` where the machine decides, or the config
    counts nodes."""
    if experiment.gpu_counts == "auto" or experiment.nodes is not None:
        return None
    return max(experiment.gpu_counts)


def follow(
    engine: Engine,
    job: SubmittedJob,
    note: Callable[[str], None],
    *,
    poll_seconds: float = _POLL_SECONDS,
) -> int:
    """Wait for the end of a job, through requeues and restarts, and say what changes.

    Args:
        engine: The engine that submitted the job.
        job: The job as the engine returned it.
        note: Takes a line for each change of the job's state.
        poll_seconds: Seconds between two questions to the scheduler.

    Returns:
        Exit code of the benchmark; 1 where the job ended without one.

    Raises:
        MachineError: the scheduler cannot be asked, or does not answer for a quarter of an hour.
    """
    last, silent_since = "", time.monotonic()
    while True:
        try:
            state = engine.state(job)
        except OSError as error:
            if time.monotonic() - silent_since > _PATIENCE_SECONDS:
                hint = f"the job may be running; its log: {job.log}"
                raise MachineError(
                    f"job {job.job_id}: {engine.scheduler} does not answer: {error}", hint=hint
                ) from error
        else:
            silent_since = time.monotonic()
            if state.text != last:
                note(f"job {job.job_id}: {state.text}")
                last = state.text
            if state.exit_code is not None:
                return state.exit_code
        time.sleep(poll_seconds)


def _refuse_options_of_others(engine: SubmitEngine, options: SubmitOptions) -> None:
    for group in (each.name for each in fields(options) if each.name != "job"):
        if group in _ENGINES[engine].groups:
            continue
        given, empty = getattr(options, group), type(getattr(options, group))()
        for option in fields(given):
            value = getattr(given, option.name)
            if value != getattr(empty, option.name):
                others = " or ".join(
                    other.value for other, kind in _ENGINES.items() if group in kind.groups
                )
                shown = value[0] if isinstance(value, tuple) else value
                raise UsageError(
                    f"--{option.name.replace('_', '-')} {shown}: not an option of --engine "
                    f"{engine.value}",
                    hint=f"it is for --engine {others}",
                )
