"""What a step would take without one of its faults, as a replay of the recording predicts it."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import (
    Count,
    Frozen,
    Real,
)


class Change(str, Enum):
    """What is changed in the replay."""

    NO_STRAGGLER = "no_straggler"
    """Every rank that is slower than the median of its peers is as fast as they are."""
    RANK_LIKE_PEERS = "rank_like_peers"
    """One rank is as fast as the median of its peers (S_rank)."""
    BALANCED_WORK = "balanced_work"
    """In every step the ranks of equal work share it evenly."""
    STEADY_WORK = "steady_work"
    """Compute takes the median of all ranks and steps (S_op of compute)."""
    STEADY_TRANSFERS = "steady_transfers"
    """Each transfer of an operation takes its median over steps (S_op of an operation)."""
    FASTER_LINK = "faster_link"
    """The time of transfers that bytes take is divided; latency stays."""
    NO_TRANSFER_TIME = "no_transfer_time"
    """Transfers take no time."""
    ACCUMULATION = "accumulation"
    """Gradients are synchronized in every second backward pass only; the step is the mean of the
    two."""
    EVEN_STAGES = "even_stages"
    """The stages of a pipeline have equal work."""
    EVEN_MICRO_BATCHES = "even_micro_batches"
    """The micro-batches of a pipeline's step are equally long."""
    LARGER_BUCKETS = "larger_buckets"
    """Gradients are reduced in fewer and larger buckets."""
    NO_HOST_GAPS = "no_host_gaps"
    """No host work between operators, or none that holds up a device."""
    NO_LOADER_WAIT = "no_loader_wait"
    """Data is there when it is needed."""
    NO_PAUSES = "no_pauses"
    """No garbage collection."""


class WhatIfRow(Frozen):
    """One change.

    Attributes:
        change: What.
        label: The change in words.
        ranks: Whose time is changed; empty for all.
        step_seconds: The predicted step.
        gain_percent: Gain as a percentage of the measured step; below 0 where the step would be
            longer.
        assumption: What the prediction rests on beyond the replay; empty for nothing.
    """

    change: Change
    label: str
    ranks: tuple[Count, ...] = ()
    step_seconds: Real
    gain_percent: Real
    assumption: str = ""


class WhatIf(Frozen):
    """Predictions, the largest gain first.

    Attributes:
        rows: Empty where the recording cannot be replayed.
        measured_step_seconds: What was measured, with nothing changed; ``None`` without a replay.
        replay_error_percent: Largest error by which the replay as recorded misses a rank's mean
            step, with its sign.
        refused: Why there is no replay; ``None`` where there is one.
        notes: Changes that could not be predicted, and why.
    """

    rows: tuple[WhatIfRow, ...] = ()
    measured_step_seconds: Real | None = None
    replay_error_percent: Real | None = None
    refused: str | None = None
    notes: tuple[str, ...] = ()
