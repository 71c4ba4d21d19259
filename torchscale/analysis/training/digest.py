"""From the steps of a launch to the digest that its record keeps for the diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.periods import slow_periods
from torchscale.analysis.diagnosis.signals import (
    Matrix,
    SignalOrigin,
    Signals,
    SlowPeriod,
    Windows,
)
from torchscale.analysis.diagnosis.step_signals import batch_means, step_signals
from torchscale.analysis.diagnosis.step_windows import step_windows
from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy, table_of
from torchscale.analysis.training.document_load import (
    LengthEffect,
    length_effect,
    waiting_for_length,
)
from torchscale.analysis.training.exchange_waits import PairedWaits, exchange_waits, of_steps
from torchscale.analysis.training.expert_load import steps_beyond_the_mean
from torchscale.schema.launch.signals import PeriodDigest, SignalDigest, StepWindows
from torchscale.schema.launch.steps import StepSample
from torchscale.util.optional import complete, optional

_DECIMALS = 9
"""Nanoseconds, below what any clock here resolves: half the digits of a record of many ranks."""
Rows = tuple[tuple[float, ...], ...]


def digest_signals(
    ranks: Sequence[Sequence[StepSample]],
    batch_steps: Sequence[int],
    paired: PairedWaits | None = None,
) -> SignalDigest:
    """What the diagnosis needs of the steps of all ranks.

    The rank that waits least for an exchange is the one that came last to it, so its exposed time
    is the transfer, and what the others' exceed it by is waiting: no clock needs to be shared. The
    exchanges of a step are taken apart: that of the buffers before the forward pass, that of the
    gradients, and all that is waited for within the phases. The last are many, and each may have
    another last rank: where it is known who called each when (``paired``), that decides.
    Of a user's script waiting and transfer are known step by step.
    """
    table, lengths = _step_table(ranks, paired), length_effect(ranks)
    edges = np.cumsum([0, *batch_steps])

    def by_batch(values: Matrix) -> Rows:
        return _rounded(batch_means(values, edges))

    explained = None if lengths is None else lengths.explained(table.own)
    known = {"compute": by_batch(table.own), "data_wait": by_batch(table.data)}
    digest = SignalDigest(**known, **_loads(ranks, table, explained, by_batch))
    rows = tuple(range(len(ranks)))
    even = _with_equal_load(ranks, table, lengths)
    signals = step_signals(even, rows, SignalOrigin.LAUNCH, edges)
    if table.waits_by is WaitsBy.NOTHING:
        windows = _unsynchronized_windows(ranks, table)
        return digest.model_copy(update={"windows": windows})
    signals = replace(signals, periods=slow_periods(even))
    return digest.model_copy(update=_digest_of(signals))


def _digest_of(signals: Signals) -> dict[str, object]:
    """What a digest holds of signals, by its names."""
    content: dict[str, object] = {
        "periods": tuple(map(_period_digest, signals.periods)),
        "windows": optional(_window_digest, signals.windows) if len(signals.ranks) > 1 else None,
    }
    if signals.pauses is not None:
        content |= {
            "long_steps": signals.pauses.count,
            "long_step_seconds": signals.pauses.seconds_per_step,
            "long_step_seconds_by_rank": signals.pauses.by_rank,
        }
    if signals.wait is None or signals.transfer is None or signals.blame is None:
        return content
    return content | {
        "wait": _rounded(signals.wait),
        "transfer": _rounded(signals.transfer[None])[0],
        "blame": tuple(map(float, signals.blame)),
        "exposed_p50": signals.exposed_p50,
        "exposed_p95": signals.exposed_p95,
    }


def _period_digest(period: SlowPeriod) -> PeriodDigest:
    return PeriodDigest(
        rank=period.row,
        steps=period.steps,
        excess_seconds=period.excess,
        cost_seconds=period.cost,
        times=period.times,
        length=period.length,
        is_exact=period.is_exact,
        first_step=period.first,
    )


def _window_digest(windows: Windows) -> StepWindows | None:
    if windows.quiet is None:
        return None

    def microseconds(values: NDArray[np.float64]) -> tuple[int, ...]:
        return tuple(int(value) for value in np.rint(values * 1e6))

    return StepWindows(
        steps=tuple(int(count) for count in windows.steps),
        wall_us=microseconds(windows.wall),
        compute_us=tuple(map(microseconds, windows.compute)),
        quiet_us=tuple(map(microseconds, windows.quiet)),
    )


def _rounded(values: Matrix) -> Rows:
    return tuple(map(tuple, np.round(values, _DECIMALS).tolist()))


def _step_table(ranks: Sequence[Sequence[StepSample]], paired: PairedWaits | None) -> JobSteps:
    """The steps; they know no waits where what ranks wait for within their phases was not taken
    apart, or is by design."""
    wall = of_steps(ranks, lambda step: step.seconds)
    compute = of_steps(ranks, lambda step: step.compute)
    columns = {
        "own": compute,
        "quiet": _quiet(ranks, compute),
        "data": of_steps(ranks, lambda step: step.data_wait),
    }
    unknown = any(step.sync is None for steps in ranks for step in steps)
    if len(ranks) > 1 and (unknown or _is_pipeline(ranks)):
        return replace(table_of(wall, columns), waits_by=WaitsBy.NOTHING)
    if len(ranks) > 1:
        waits = exchange_waits(ranks, paired)
        columns |= {"wait": waits.wait, "transfer": waits.transfer, "blame": waits.blame}
    return table_of(wall, columns)


def _is_pipeline(ranks: Sequence[Sequence[StepSample]]) -> bool:
    """Whether the ranks are stages, which wait for each other by design: what they are blocked for
    within their passes is taken apart, and blames nobody."""
    return all(step.bubble is not None and step.own is None for steps in ranks for step in steps)


def _unsynchronized_windows(
    ranks: Sequence[Sequence[StepSample]], table: JobSteps
) -> StepWindows | None:
    """Windows of the steps of a pipeline, whose ranks measure waits apart; ``None`` for ranks whose
    phases hold waits for other ranks, so that a pause of one would be seen in all. Copies that
    reduce gradients within the last backward pass wait there too: the forward pass has no waits."""
    if any(step.bubble is None for steps in ranks for step in steps):
        return None
    # Clipping waits for all ranks.
    optimizer = of_steps(ranks, lambda step: step.optimizer)
    forward = of_steps(ranks, lambda step: step.forward)
    windows = step_windows(table.own - optimizer, table.wall.mean(axis=0), forward)
    return None if windows is None else _window_digest(windows)


def _loads(
    ranks: Sequence[Sequence[StepSample]],
    table: JobSteps,
    explained: Matrix | None,
    by_batch: Callable[[Matrix], Rows],
) -> dict[str, object]:
    """What the experts and the lengths of samples of each rank make it do, by the digest's
    names."""
    loads: dict[str, object] = {}
    experts = complete(step.experts for steps in ranks for step in steps)
    if experts is not None:
        tokens, took = (
            np.array([float(getattr(step, name)) for step in experts]).reshape(table.wall.shape)
            for name in ("tokens_per_rank", "seconds")
        )
        loads = {"expert_tokens_per_rank": by_batch(tokens), "expert_seconds": by_batch(took)}
    if explained is None:
        return loads
    tokens_per_step = [
        np.mean([step.documents.computed_tokens_per_rank for step in steps if step.documents])
        for steps in ranks
    ]
    return loads | {
        "length_seconds": by_batch(explained),
        "length_wait_seconds": max(0.0, waiting_for_length(explained)),
        "computed_tokens_per_rank": tuple(map(float, tokens_per_step)),
    }


def _with_equal_load(
    ranks: Sequence[Sequence[StepSample]], table: JobSteps, lengths: LengthEffect | None
) -> JobSteps:
    """The steps as if all samples were of one length and the experts of all ranks took as long: a
    rank whose experts get many tokens is not slow by itself."""
    own, quiet = table.own, table.quiet
    is_quiet = quiet is own
    beyond = steps_beyond_the_mean(ranks)
    in_forward = steps_beyond_the_mean(ranks, forward_only=True)
    if beyond is not None and in_forward is not None:
        own = np.maximum(own - beyond, 0.0)
        quiet = own if is_quiet else np.maximum(quiet - in_forward, 0.0)
    if lengths is not None:
        own = np.maximum(own - lengths.explained(own), 0.0)
        quiet = own if is_quiet else np.maximum(quiet - lengths.explained(quiet), 0.0)
    return replace(table, own=own, quiet=quiet)


def _quiet(ranks: Sequence[Sequence[StepSample]], compute: Matrix) -> Matrix:
    """Per rank and step, what no exchange disturbs: with gradients that travel during the backward
    pass, forward pass and optimizer; where each exchange is waited for at once, all compute."""
    own = complete(step.own for steps in ranks for step in steps)
    if own is not None:
        return np.array([step.calm for step in own]).reshape(compute.shape)
    if any(step.exposed_sync is None for steps in ranks for step in steps):
        return compute
    return of_steps(ranks, lambda step: (step.forward or 0.0) + (step.optimizer or 0.0))
