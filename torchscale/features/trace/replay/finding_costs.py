"""What findings cost, by a replay without their cause."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.diagnosis.rules_pipeline import STAGE_FLOOR
from torchscale.features.trace.replay.edits import Edits
from torchscale.features.trace.replay.graph import EdgeKind, Times
from torchscale.features.trace.replay.replay import Replay
from torchscale.features.trace.replay.what_if import as_is, crowded_ranks, replayed_steps
from torchscale.schema.profiles.finding import CostBasis, Finding, FindingKind


def replayed_costs(findings: Sequence[Finding], replay: Replay) -> tuple[Finding, ...]:
    """The findings, the costliest first, with the gain that the replay predicts where it can remove
    the cause; without those of which it shows that they cost next to nothing.

    Raises:
        ReplayError: moments follow each other in a circle.
    """
    edits = Edits(replay)
    removed = [(number, _removed(finding, edits)) for number, finding in enumerate(findings)]
    known = [(number, weights) for number, weights in removed if weights is not None]
    if not known:
        return tuple(findings)
    base, *steps = replayed_steps(
        replay, [as_is(edits.recorded), *(as_is(weights) for _, weights in known)]
    )
    costs = {
        number: max(0.0, base - seconds) for (number, _), seconds in zip(known, steps, strict=True)
    }
    replayed = [
        finding.model_copy(
            update={
                "cost_percent": costs[number] / replay.measured * 100,
                "cost_seconds": costs[number],
                "cost_basis": CostBasis.REPLAY,
            }
        )
        if number in costs
        else finding
        for number, finding in enumerate(findings)
    ]
    lasting = [finding for finding in replayed if not _is_hidden(finding)]
    return tuple(sorted(lasting, key=lambda finding: -finding.cost_percent))


def _is_hidden(finding: Finding) -> bool:
    """Micro-batches may be of different lengths in an order in which nobody waits for it."""
    uneven = finding.kind is FindingKind.UNEVEN_MICRO_BATCHES
    return (
        uneven
        and finding.cost_basis is CostBasis.REPLAY
        and finding.cost_percent < STAGE_FLOOR * 100
    )


def _removed(finding: Finding, edits: Edits) -> Times | None:
    """The recording without the cause of a finding; ``None`` where a replay cannot remove it."""
    columns = [
        column for column, rank in enumerate(edits.replay.ranks) if rank.trace.rank == finding.rank
    ]
    match finding.kind:
        case FindingKind.STRAGGLER | FindingKind.INTERMITTENT_STRAGGLER if (
            columns and edits.own.peers(columns[0])
        ):
            return edits.like_peers(columns)
        case FindingKind.INPUT_PIPELINE if columns and edits.own.peers(columns[0]):
            return edits.like_peers(columns, (EdgeKind.INPUT,))
        case FindingKind.INPUT_PIPELINE:
            return edits.without_common(EdgeKind.INPUT)
        case FindingKind.LOAD_IMBALANCE:
            return edits.balanced_work()
        case FindingKind.EXPOSED_COMMUNICATION if len(edits.replay.tie_steps):
            return edits.without(EdgeKind.TRANSFER)
        case FindingKind.HOST_BOUND if not crowded_ranks(edits.replay):
            return edits.without_common(EdgeKind.HOST_GAP)
    return _removed_of_pipeline(finding, edits)


def _removed_of_pipeline(finding: Finding, edits: Edits) -> Times | None:
    match finding.kind:
        case FindingKind.UNEVEN_STAGES:
            return edits.even_stages()
        case FindingKind.UNEVEN_MICRO_BATCHES:
            return edits.even_micro_batches()
    return None
