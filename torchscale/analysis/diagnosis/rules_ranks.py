"""Rules about ranks that wait for one another or for data."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    BLAME,
    DATA_WAIT,
    EARLIER,
    LENGTHS,
    WAIT,
    Earlier,
    Judgement,
    has_lengths,
    rule,
    several_ranks,
)
from torchscale.analysis.diagnosis.shared import (
    COST_FLOOR,
    EXPLAINED_SHARE,
    MIN_SAMPLES,
    cannot_name,
    high_if,
    per_step,
    percent,
)
from torchscale.analysis.diagnosis.signals import (
    MIN_COMPARED,
    LengthLoad,
    Matrix,
    SignalOrigin,
    Signals,
    SignalSeries,
)
from torchscale.analysis.diagnosis.undisturbed import COMPUTE_EXCESS
from torchscale.analysis.stats.peers import outliers_among_peers
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

IMBALANCE_FLOOR = 0.12
"""Share of the step. Ranks do not leave a collective at the same moment and their steps scatter,
which counts as waiting: 12 clean runs of gloo ranks on two cores have none (docs/tested-on.md)."""
IMBALANCE_TOP_BLAME = 0.75
"""Chosen: beyond this share of the blame that named ranks leave, a single rank is late, and ranks
do not take turns. Beyond the same share, slow spells are one rank's."""
IMBALANCE_SECOND_BLAME = 0.5
"""Share of an even share of it that a second rank has at least, to be late in turn."""
INPUT_FLOOR = 0.05
"""Share of the step that every rank waits for data. Above :data:`COST_FLOOR`, since collating and
copying a batch takes something in every run."""
_MAX_SHOWN_RANKS = 16
"""Ranks whose values are listed as evidence."""


@rule(FindingKind.INPUT_PIPELINE, DATA_WAIT)
def input_pipeline(signals: Signals, data: Matrix) -> Judgement:
    """Waits for data, on every rank or on one that the others wait for."""
    means = signals.mean(data)
    advice = (
        "give the loader more workers, prefetch and pin; keep decoding and augmentation off the "
        "training process"
    )
    everyone = float(means.min())
    floor = max(COMPUTE_EXCESS * signals.step_seconds, everyone)
    enough = signals.trusted and data.shape[1] >= MIN_SAMPLES and signals.steps >= MIN_COMPARED
    # It cannot exceed the others by more than all its waiting.
    late = outliers_among_peers(data) if enough and means.max() > floor else []
    if late and late[0].excess.value > floor:
        row, excess = late[0].row, late[0].excess
        cost = min(excess.value, _waiting_for(signals, row))
        if cost >= COST_FLOOR * signals.step_seconds:
            rank = signals.ranks[row]
            return Finding(
                kind=FindingKind.INPUT_PIPELINE,
                rank=rank,
                cost_percent=percent(cost, signals),
                cost_seconds=cost,
                confidence=high_if(not _is_hosts_alone(signals), Confidence.LOW),
                summary=f"rank {rank} waits {format_seconds(float(means[row]))} a step for data, "
                f"the others {format_seconds(float(np.median(np.delete(means, row))))}; all wait "
                "for it",
                evidence=(
                    f"{excess.text(format_seconds)} more, over {signals.steps} steps",
                    *_data_doubt(signals),
                ),
                advice=f"look at rank {rank}'s storage, its shard and its loader's cores; {advice}",
            )
    if everyone < INPUT_FLOOR * signals.step_seconds:
        return None
    certain = signals.steps >= MIN_COMPARED and not _is_hosts_alone(signals)
    return Finding(
        kind=FindingKind.INPUT_PIPELINE,
        cost_percent=percent(everyone, signals),
        cost_seconds=everyone,
        confidence=high_if(certain, Confidence.LOW),
        summary=f"every rank waits at least {per_step(everyone, signals)} for data",
        evidence=(
            "mean wait by rank: "
            f"{', '.join(format_seconds(float(value)) for value in means[:_MAX_SHOWN_RANKS])}",
            *_data_doubt(signals),
        ),
        advice=advice,
    )


def _waiting_for(signals: Signals, row: int) -> float:
    """Seconds a step that the others wait for a rank of a watched job on devices; infinite
    elsewhere, where what a rank waits for data is what it is late."""
    if signals.origin is not SignalOrigin.LENGTHS or signals.wait is None or signals.blame is None:
        return float("inf")
    waits = float(signals.mean(signals.wait).sum())
    return float(signals.blame[row]) * waits / (len(signals.ranks) - 1)


def _is_hosts_alone(signals: Signals) -> bool:
    """Whether it is the host of a device that was seen to wait, and nothing tells whether the device
    did."""
    return signals.on_device and signals.origin is SignalOrigin.JOB


def _data_doubt(signals: Signals) -> list[str]:
    if not _is_hosts_alone(signals):
        return []
    return ["by the host: its device may be busy meanwhile; torchscale profile tells"]


@rule(FindingKind.UNEVEN_LENGTHS, LENGTHS, where=(several_ranks, has_lengths))
def uneven_lengths(signals: Signals, lengths: LengthLoad) -> Judgement:
    """Waiting for the rank whose samples are longest in a step: what their tokens take beyond the
    mean of all ranks, and no more than ranks wait."""
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    cost, confidence = lengths.wait_seconds, Confidence.MEDIUM
    if signals.wait is not None:
        waited = float(signals.mean(signals.wait).mean())
        confidence = high_if(waited >= EXPLAINED_SHARE * cost, Confidence.MEDIUM)
        cost = min(cost, waited)
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    shown = zip(signals.ranks[:_MAX_SHOWN_RANKS], lengths.tokens, strict=False)
    return Finding(
        kind=FindingKind.UNEVEN_LENGTHS,
        cost_percent=percent(cost, signals),
        cost_seconds=cost,
        confidence=confidence,
        summary=f"ranks wait {format_seconds(cost)} a step for the one whose samples are longest; "
        "no device is slow for it",
        evidence=(
            "tokens of a step with padding, mean: "
            + ", ".join(f"rank {rank}: {tokens:,.0f}" for rank, tokens in shown),
        ),
        advice="pack documents into samples of one length (data.packing: packed), or put documents "
        "of similar length into one step",
    )


def take_turns(blame: SignalSeries) -> bool:
    """Whether at least two ranks are late, each in a good part of the steps.

    Args:
        blame: Of each rank that is not named for something else.
    """
    total = float(blame.sum())
    if len(blame) < 2 or total <= 0:
        return False
    second, top = np.sort(blame)[-2:] / total
    return bool(top <= IMBALANCE_TOP_BLAME and second >= IMBALANCE_SECOND_BLAME / len(blame))


@rule(FindingKind.LOAD_IMBALANCE, WAIT, BLAME, EARLIER, where=(several_ranks,))
def load_imbalance(
    signals: Signals, wait: Matrix, blame: SignalSeries, earlier: Earlier
) -> Judgement:
    """Waiting that is nobody's in particular."""
    if (refusal := cannot_name(signals)) is not None:
        return refusal
    named = sorted(
        {signals.ranks.index(finding.rank) for finding in earlier if finding.rank is not None}
    )
    left = float(signals.mean(wait).mean()) * float(
        1 - blame[named].sum()
    )  # the slowest of a step minus the mean
    left -= sum(
        item.cost_seconds
        for item in earlier
        if item.kind in (FindingKind.PAUSES, FindingKind.UNEVEN_LENGTHS) and item.rank is None
    )
    if left < IMBALANCE_FLOOR * signals.step_seconds or not take_turns(np.delete(blame, named)):
        return None
    return Finding(
        kind=FindingKind.LOAD_IMBALANCE,
        cost_percent=percent(left, signals),
        cost_seconds=left,
        confidence=Confidence.MEDIUM,
        summary=f"ranks wait {format_seconds(left)} a step for one another, and take turns at "
        "being late",
        evidence=(
            "last to arrive, share of waiting: "
            + ", ".join(
                f"rank {rank}: {format_percent(float(share), 0)}"
                for rank, share in zip(signals.ranks, blame, strict=True)
            ),
        ),
        advice="look for what makes ranks late in turn: other processes on their cores, clocks, "
        "or samples that differ in size (give every rank the same amount of work in a step)",
    )
