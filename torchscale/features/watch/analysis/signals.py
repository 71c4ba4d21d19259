"""From the steps of a watched job to the signals that the diagnosis judges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchscale.analysis.diagnosis.periods import slow_periods
from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals
from torchscale.analysis.diagnosis.step_signals import step_signals
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.features.watch.analysis.step_log import StepLog

_BATCHES = 48
"""Samples of each signal: enough for an interval and for quarters of a run, and each a mean over
many steps."""
_BUBBLE_SHARE = 0.5
"""Of the time that ranks are blocked: beyond it, sends and receives are what they wait for, and
they are stages of a pipeline."""


def job_signals(
    steps: JobSteps, log: StepLog, *, on_device: bool = False, single: JobSteps | None = None
) -> Signals:
    """What the rules judge of these steps.

    Args:
        steps: Of a stretch of the job.
        log: All of its steps.
        on_device: Whether the work runs on a device beside the host.
        single: Steps one by one, in which periods are looked for; ``None`` where they are not.
    """
    edges = np.linspace(0, len(steps), min(_BATCHES, len(steps)) + 1).round().astype(np.int64)
    waits_by = steps.waits_by
    if waits_by is WaitsBy.LENGTHS and (
        log.sends or not (steps.wait.any() or steps.transfer.any())
    ):
        waits_by = WaitsBy.NOTHING  # waits of sends and receives are not known
    bubble, waited = steps.bubble.sum(), steps.wait.sum() + steps.transfer.sum()
    signals = step_signals(
        replace(steps, waits_by=waits_by),
        log.ranks,
        SignalOrigin.LENGTHS if waits_by is WaitsBy.LENGTHS else SignalOrigin.JOB,
        edges,
        robust=waits_by is WaitsBy.CALLS,
        host_runs_ahead=on_device,
    )
    signals = replace(
        signals,
        steps=len(steps) * log.per_column,
        on_device=on_device,
        staged=log.sends or bool(bubble > _BUBBLE_SHARE * (bubble + waited)),
        stages=log.stages,
        micro_batches=max(1, round(float(np.median(steps.passes)))),
        why_no_stages="which ranks share a stage of the pipeline is not recorded",
    )
    if single is not None:
        periods = slow_periods(replace(single, waits_by=waits_by), host_runs_ahead=on_device)
        signals = replace(signals, periods=periods)
    if not waited:
        signals = replace(
            signals, wait=None, blame=None, transfer=None, exposed_p50=None, exposed_p95=None
        )
    if not steps.data.any():
        signals = replace(signals, data_wait=None)
    if waits_by is not WaitsBy.LENGTHS:
        return signals
    return replace(
        signals,
        hosts=log.hosts,
        estimated_share=float(steps.estimated.sum() / max(steps.wait.sum(), 1e-12)),
    )
