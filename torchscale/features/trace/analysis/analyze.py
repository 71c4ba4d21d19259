"""A recording analyzed: from spans to figures, waits, causes and a picture. Definitions in
``docs/diagnosis.md``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.signals import MIN_COMPARED
from torchscale.config.choices import WindowChoice
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.clocks import clock_offsets, ending_together
from torchscale.features.trace.analysis.communication import (
    about_communication,
    check_communication,
)
from torchscale.features.trace.analysis.paired import Paired
from torchscale.features.trace.analysis.pairing import pair
from torchscale.features.trace.analysis.sampled import diagnosis_of_sample
from torchscale.features.trace.analysis.signals import trace_signals
from torchscale.features.trace.analysis.stages import StageLayout, find_stages
from torchscale.features.trace.analysis.step_excess import step_excess
from torchscale.features.trace.analysis.summary import (
    breakdown,
    collective_summaries,
    kernel_summaries,
    worst_step,
)
from torchscale.features.trace.analysis.waits import Waits, in_windows
from torchscale.features.trace.analysis.windows import (
    NS,
    RankWindow,
    StepRange,
    choose_window,
    rank_windows,
    step_periods,
)
from torchscale.features.trace.replay.finding_costs import replayed_costs
from torchscale.features.trace.replay.graph import ReplayError
from torchscale.features.trace.replay.replay import build_replay
from torchscale.features.trace.replay.what_if import predict_changes
from torchscale.features.trace.span import SpanKind, Trace
from torchscale.schema.profiles.analysis import ProfileAnalysis, Window
from torchscale.schema.profiles.finding import Confidence, Finding
from torchscale.schema.profiles.what_if import WhatIf
from torchscale.util.units import format_percent

_OTHER_WORK = 0.1
"""Device work of a step beside that of the first, below which the steps do not do the same: the
first of training takes longer, but not ten times as long on the device."""
_MAX_PROBLEM = 200
"""Characters: an error may quote what is wrong."""


def analyze_trace(
    trace: Trace,
    window: WindowChoice = WindowChoice.AUTO,
    *,
    steps: StepRange | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ProfileAnalysis:
    """Everything that a recording tells.

    Args:
        trace: All ranks.
        window: Which part is analyzed.
        steps: Which steps; ``None`` for all that ranks share.
        say: Called with what is being done.

    Raises:
        TraceError: it has no steps although they are asked for, or nothing at all in it; or it says
            that its backend is NCCL and holds no NCCL kernel, which is a recording without
            communication and not communication of 0 %.
    """
    _check(trace)
    try:
        with np.errstate(all="ignore"):  # what overflows is refused by the form of the analysis
            return _analyze(trace, window, steps, say)
    except (ValueError, ArithmeticError, LookupError) as error:
        # Each rank is sound by itself; together they may still contradict each other.
        problem = f"{type(error).__name__}: {error}"[:_MAX_PROBLEM]
        raise TraceError(
            f"the recordings cannot be analyzed together ({problem})",
            hint="analyze them one by one to find the damaged one",
        ) from error


def _analyze(
    trace: Trace, window: WindowChoice, steps: StepRange | None, say: Callable[[str], None]
) -> ProfileAnalysis:
    say(f"Pairing the collectives of {len(trace.ranks):,} ranks")
    layout = find_stages(trace.ranks)
    pairing = pair(trace, layout.stages)
    in_order, group_problems = ending_together(trace, pairing.paired)
    offsets, clock_problems = clock_offsets(trace, in_order)
    say(f"Analyzing {len(trace.ranks):,} ranks")
    kind, numbers, left_out = choose_window(trace, window, steps)
    ranks = rank_windows(trace, kind, numbers)
    _check_windows(ranks)
    paired = in_windows(in_order, ranks, offsets)
    comparable = len(paired) > 0 and not clock_problems
    view, stall = None, None
    window_seconds = sum(rank.length for rank in ranks) * NS
    if comparable:
        view = Waits(ranks, paired, offsets)
        stall = sum(cover.length for cover in view.stalls) * NS / window_seconds * 100
    about_waits = [
        *pairing.problems,
        *group_problems,
        *clock_problems,
        *_few_collectives(ranks, paired),
    ]
    doubts = [*_doubts(trace, ranks, left_out), *about_communication(trace)]
    reasons = [*about_waits, *doubts]
    if trace.absent:
        reasons.append(_about_sample(trace))
    signals = trace_signals(ranks, view, layout, trusted=not (about_waits or doubts))
    if (
        signals.stages is not None
    ):  # whose ranks are compared by their compute, without waits and clocks
        signals = replace(signals, trusted=not doubts)
    diagnosis = diagnose(signals)
    if trace.absent:
        diagnosis = diagnosis_of_sample(diagnosis, signals, trace.absent)
    say("Replaying the steps")
    what_if, findings = _replayed(
        ranks, paired, layout, offsets, about_clocks=clock_problems, findings=diagnosis.findings
    )
    confidence = Confidence.HIGH
    if reasons:
        confidence = Confidence.LOW
    return ProfileAnalysis(
        recorder=trace.recorder,
        sources=tuple(rank.source for rank in trace.ranks),
        world_size=len(trace.ranks),
        sync_stall_percent=stall,
        window=Window(
            kind=kind,
            steps=len(ranks[0].steps) or None,
            seconds=window_seconds,
            first_step_left_out=left_out,
            confidence=confidence,
            reasons=tuple(reasons),
        ),
        step_seconds=_step_seconds(ranks),
        per_rank=tuple(breakdown(rank, column, view) for column, rank in enumerate(ranks)),
        collectives=collective_summaries(ranks, paired, view),
        kernels=kernel_summaries(ranks),
        findings=findings,
        abstentions=diagnosis.abstentions,
        timeline=worst_step(ranks, view, offsets),
        notes=trace.notes + pairing.notes,
        what_if=what_if,
        step_excess=step_excess(signals, ranks[0].steps.number.tolist()),
    )


def _replayed(
    ranks: list[RankWindow],
    paired: Paired,
    layout: StageLayout,
    offsets: NDArray[np.int64],
    *,
    about_clocks: tuple[str, ...],
    findings: tuple[Finding, ...],
) -> tuple[WhatIf, tuple[Finding, ...]]:
    """Predictions and the findings' costs from a replay; where there is none, the reason and the
    findings as they are."""
    if about_clocks:
        return WhatIf(refused="; ".join(about_clocks)), findings
    try:
        replay = build_replay(ranks, paired, layout, offsets)
        return predict_changes(replay), replayed_costs(findings, replay)
    except ReplayError as error:
        return WhatIf(refused=str(error)), findings


def _check(trace: Trace) -> None:
    for rank in trace.ranks:
        work = rank.spans.of(SpanKind.COMPUTE, SpanKind.COPY, SpanKind.OPERATOR, SpanKind.READBACK)
        if not work.any() and not len(rank.collectives):
            raise TraceError(
                f"{rank.source}: an empty recording", hint="record at least one whole training step"
            )
        lengths = (rank.spans.end - rank.spans.start)[work]
        if not lengths.any() and not (rank.collectives.end - rank.collectives.start).any():
            raise TraceError(f"{rank.source}: nothing in it took any time", hint="record it again")
    check_communication(trace)


def _check_windows(ranks: list[RankWindow]) -> None:
    for rank in ranks:
        if rank.length <= 0:
            raise TraceError(
                f"{rank.trace.source}: its steps begin and end at the same moment",
                hint="use --window device, or record it again",
            )


def _step_seconds(ranks: list[RankWindow]) -> float | None:
    if not len(ranks[0].steps):
        return None
    return float(np.mean(step_periods(ranks).max(axis=0))) * NS


def _about_sample(trace: Trace) -> str:
    here = len(trace.ranks)
    return f"{here:,} of {here + trace.absent:,} recorded ranks were analyzed"


def _few_collectives(ranks: list[RankWindow], paired: Paired) -> list[str]:
    if len(ranks) < 2 or len(paired) >= MIN_COMPARED:
        return []
    return [f"{len(paired)} collectives could be compared; fewer than {MIN_COMPARED} say little"]


def _doubts(trace: Trace, ranks: list[RankWindow], left_out: bool) -> list[str]:
    """Why shares of this recording are to be taken with care, besides waits."""
    doubts = []
    if len(ranks) < 2:
        doubts.append("one rank alone: nobody to compare it with")
    steps = len(ranks[0].steps)
    if steps and not left_out:
        doubts.append(
            "one step was recorded, and the first carries the skew of the profiler's start"
        )
    if steps and left_out:
        doubts += _work_left_out(ranks)
    if not steps:
        doubts.append("no steps are marked in it; shares are of the time from first to last span")
    sizes = {rank.world_size for rank in trace.ranks if rank.world_size is not None}
    if trace.absent:  # what follows from that is judged for itself
        return doubts
    if len(sizes) == 1 and len(trace.ranks) < min(sizes):
        doubts.append(
            f"{len(trace.ranks)} of {min(sizes)} ranks are here; the others may arrive later still"
        )
    return doubts


def _work_left_out(ranks: list[RankWindow]) -> list[str]:
    """Whether the device's work lies in the step that is left out, which is the first."""
    for rank in ranks:
        spans = rank.trace.spans
        kernels = spans.of(SpanKind.COMPUTE)
        if not rank.trace.on_device or not kernels.any():
            continue
        lengths = (spans.end - spans.start)[kernels]
        before = int(lengths[spans.start[kernels] < rank.start].sum())
        after = int(lengths.sum()) - before
        if after / len(rank.steps) < _OTHER_WORK * before:
            share = format_percent(before / (before + after), 0)
            return [
                f"{share} of the device's compute is in the first recorded step, which is left "
                f"out (rank {rank.trace.rank})"
            ]
    return []
