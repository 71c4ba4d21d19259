"""What a diagnosis of some of the recorded ranks can say of all of them.

After the last rank of a sample has arrived, all of its ranks still wait for any that was not read
and arrives later. So no such rank costs more than what is left of the communication from there on:
that is the bound by which a cause that the sample shows can be called the one that matters, and
which tells whether there can be another one.
"""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.analysis.diagnosis.signals import Signals
from torchscale.schema.profiles.finding import (
    Abstention,
    Confidence,
    Diagnosis,
    Finding,
    FindingKind,
)
from torchscale.util.units import format_percent, format_seconds

_NAME_RANKS = (
    FindingKind.STRAGGLER,
    FindingKind.STRAGGLING_NODE,
    FindingKind.INTERMITTENT_STRAGGLER,
)
"""What a rank that was not read can be more than one that was."""
_MAY_HIDE = (FindingKind.STRAGGLER, FindingKind.LOAD_IMBALANCE, FindingKind.INPUT_PIPELINE)
"""Causes of one rank, or of some, that may not be among those that were read."""
_OF_TRANSFERS = (
    FindingKind.EXPOSED_COMMUNICATION,
    FindingKind.SMALL_BUCKETS,
    FindingKind.SLOW_LINK,
    FindingKind.SYNC_VARIANCE,
)
"""What waiting for a rank that was not read looks like."""


def diagnosis_of_sample(diagnosis: Diagnosis, signals: Signals, absent: int) -> Diagnosis:
    """The findings that hold whatever ``absent`` further ranks did, none with high confidence; of
    the others, why they cannot be told."""
    hidden = _hidden_seconds(signals)
    kept: list[Finding] = []
    abstentions = list(diagnosis.abstentions)
    for finding in diagnosis.findings:
        reason = _why_not(finding, hidden, absent)
        if reason:
            abstentions.append(Abstention(kind=finding.kind, reason=reason))
        else:
            kept.append(_doubted(finding))
    told = {finding.kind for finding in kept} | {item.kind for item in abstentions}
    if hidden is None or hidden >= COST_FLOOR * signals.step_seconds:
        reason = (
            f"one of {absent:,} ranks that were not read may be late: {_bound(hidden, signals)}"
        )
        untold = [kind for kind in _MAY_HIDE if kind not in told]
        if told.intersection(_NAME_RANKS):
            untold = [kind for kind in untold if kind not in _NAME_RANKS]
        abstentions += [Abstention(kind=kind, reason=reason) for kind in untold]
    return Diagnosis(findings=tuple(kept), abstentions=tuple(abstentions))


def _hidden_seconds(signals: Signals) -> float | None:
    """The most that a rank that was not read can cost, in seconds a step; ``None`` where that is
    not known."""
    if signals.transfer is None:
        return None
    return float(np.mean(signals.transfer))


def _why_not(finding: Finding, hidden: float | None, absent: int) -> str:
    """Why a finding may be another rank's; empty where it holds."""
    if finding.kind in _OF_TRANSFERS:
        return f"what it costs may be waiting for one of {absent:,} ranks that were not read"
    if finding.kind not in _NAME_RANKS:
        return ""
    if hidden is None:
        return f"how long ranks wait for the {absent:,} that were not read is not known"
    if finding.cost_seconds is not None and finding.cost_seconds > hidden:
        return ""
    return (
        f"a rank that was not read may be later still: {finding.summary}; after that, collectives "
        f"take {format_seconds(hidden)} a step"
    )


def _doubted(finding: Finding) -> Finding:
    if finding.confidence is Confidence.HIGH:
        return finding.model_copy(update={"confidence": Confidence.MEDIUM})
    return finding


def _bound(hidden: float | None, signals: Signals) -> str:
    if hidden is None:
        return "collectives could not be compared"
    share = format_percent(hidden / signals.step_seconds)
    return f"after the last that was, collectives take {share} of the step"
