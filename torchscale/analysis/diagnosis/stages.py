"""Ranks of a pipeline's stages that hold equal work, and the samples that they are compared by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.shared import MIN_SAMPLES
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    Matrix,
    SignalOrigin,
    Signals,
    Windows,
)
from torchscale.analysis.diagnosis.undisturbed import run_blocks


@dataclass(frozen=True)
class ComparedStages:
    """Ranks that can be compared with each other.

    Attributes:
        stages: Rows of the ranks of each stage.
        samples: The time that each rank computes by itself, by parts of the run; seconds per step.
    """

    stages: tuple[tuple[int, ...], ...]
    samples: Matrix


def compared_stages(signals: Signals, compute: Matrix | None) -> ComparedStages | str:
    """The ranks of the stages, or why they cannot be compared. ``compute`` is taken where the steps
    were not recorded one by one."""
    if signals.stages is None:
        return (
            "ranks communicate by sends and receives, as stages of a pipeline do: they hold "
            "different work; "
            + (signals.why_no_stages or "which of them hold equal work is not known")
        )
    if max(signals.steps, signals.collectives or 0) < MIN_COMPARED:
        return f"fewer than {MIN_COMPARED} steps or collectives"
    if signals.origin is SignalOrigin.LAUNCH and signals.windows is None:
        return (
            f"fewer than {MIN_COMPARED} steps, or a record without the windows of steps that show "
            "each rank's compute"
        )
    if signals.windows is not None:
        compute = own_work(signals, signals.windows).compute
    if compute is None or compute.shape[1] < MIN_SAMPLES:
        return "too few samples of each rank's compute time"
    return ComparedStages(signals.stages, run_blocks(compute, np.ones(compute.shape[1])))


def is_forward_only(signals: Signals) -> bool:
    """Copies of a stage reduce gradients within their last backward pass, as far as a launch can
    tell."""
    return signals.origin is SignalOrigin.LAUNCH and any(
        len(stage) > 1 for stage in signals.stages or ()
    )


def own_work(signals: Signals, windows: Windows) -> Windows:
    """Windows of the time that each rank computes by itself."""
    if windows.quiet is None or not is_forward_only(signals):
        return Windows(windows.steps, windows.wall, windows.compute)
    return Windows(windows.steps, windows.wall, windows.quiet)
