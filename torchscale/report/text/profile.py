"""Sentences and figures of a profile, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.schema.profiles.analysis import ProfileAnalysis, RankBreakdown, WindowKind
from torchscale.schema.profiles.what_if import WhatIf, WhatIfRow
from torchscale.util.units import format_percent, format_seconds

RANK_HEADINGS = (
    "rank",
    "compute",
    "sync stall",
    "transfer",
    "exposed",
    "copies",
    "host-bound",
    "input",
    "other",
    "overlap",
    "blame",
)
"""The rank, and what :func:`rank_shares` gives; :func:`rank_columns` says which are shown."""
_SPLIT, _UNSPLIT = ("sync stall", "transfer"), ("exposed",)
MIN_GAIN_PERCENT = 0.5
"""Predictions of less are left out of tables: steps vary by more."""
WHAT_IF_HEADINGS = ("without it", "predicted step", "predicted gain", "assumption")
"""What :func:`shown_predictions` are shown under."""


def what_if_line(what_if: WhatIf) -> str:
    """How far the predictions can be trusted, or why there are none."""
    if what_if.refused is not None or what_if.measured_step_seconds is None:
        return f"Nothing predicted: {what_if.refused or 'the recording was not replayed'}"
    error = what_if.replay_error_percent or 0.0
    return (
        f"Predicted by replay (measured step {format_seconds(what_if.measured_step_seconds)}, "
        f"replayed as recorded within {max(0.1, abs(error)):.1f} %); gains overlap and do not add "
        "up"
    )


def shown_predictions(what_if: WhatIf) -> tuple[WhatIfRow, ...]:
    """The predictions that are worth a row, the largest gain first."""
    return tuple(row for row in what_if.rows if row.gain_percent >= MIN_GAIN_PERCENT)


def is_of_devices(analysis: ProfileAnalysis) -> bool:
    """Whether it is of devices, which copy, and not of CPUs."""
    return any(rank.copy_seconds is not None for rank in analysis.per_rank)


def stall_line(analysis: ProfileAnalysis) -> str:
    """``Sync stall time: 15.0 % of step time (4 ranks, 212 steps)``."""
    scope = _scope(analysis)
    if analysis.sync_stall_percent is None:
        why = "; ".join(analysis.window.reasons) or "no collectives"
        if analysis.world_size == 1:
            why = "only one rank"
        return f"Sync stall time: not measured ({scope}: {why})"
    over = "step time"
    if analysis.window.kind is WindowKind.DEVICE_SPAN:
        over = "recorded time"
    return f"Sync stall time: {analysis.sync_stall_percent:.1f} % of {over} ({scope})"


def split_line(analysis: ProfileAnalysis) -> str:
    """``1 rank, 212 steps: compute 91.2 %, host-bound 3.0 %, input 1.1 %, other 4.7 % of its
    time``: what a rank tells by itself, with nobody to stall for. Of several ranks
    :func:`stall_line`."""
    if len(analysis.per_rank) != 1 or analysis.world_size != 1:
        return stall_line(analysis)
    shares = zip(RANK_HEADINGS[1:], rank_shares(analysis.per_rank[0]), strict=True)
    known = [
        f"{name} {format_percent(share)}"
        for name, share in shares
        if share is not None and name not in ("overlap", "blame")
    ]
    return f"{_scope(analysis)}: {', '.join(known)} of its time"


def _scope(analysis: ProfileAnalysis) -> str:
    """``4 ranks, 212 steps``."""
    ranks = f"{analysis.world_size} rank{'s' * (analysis.world_size > 1)}"
    steps = analysis.window.steps
    if steps is None:
        return ranks
    return f"{ranks}, {steps} step{'s' * (steps > 1)}"


def rank_columns(ranks: Sequence[RankBreakdown]) -> list[int]:
    """Places of the headings to show: exposed communication stands for waiting and transfer where
    these could not be told apart."""
    unsplit = any(_exposed(rank) is not None for rank in ranks)
    hidden = _SPLIT if unsplit else _UNSPLIT
    return [place for place, name in enumerate(RANK_HEADINGS) if name not in hidden]


def _exposed(rank: RankBreakdown) -> float | None:
    if rank.sync_stall_seconds is not None or not rank.communication_seconds:
        return None
    return rank.exposed_communication_seconds


def rank_shares(rank: RankBreakdown) -> list[float | None]:
    """Shares of the rank's window, of its communication, and of all waiting; ``None`` was not
    measured."""
    parts = (
        rank.compute_seconds,
        rank.sync_stall_seconds,
        rank.transfer_seconds,
        _exposed(rank),
        rank.exposed_copy_seconds,
        rank.idle.host_bound_seconds,
        rank.idle.input_seconds,
        rank.idle.other_seconds,
    )
    blame = None
    if rank.blame_percent is not None:
        blame = rank.blame_percent / 100
    return [
        *(None if part is None else part / rank.window_seconds for part in parts),
        rank.overlap,
        blame,
    ]
