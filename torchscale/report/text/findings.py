"""Findings in words, shared by all formats."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from torchscale.schema.profiles.finding import Abstention, CostBasis, Finding, FindingKind
from torchscale.util.units import format_percent
from torchscale.util.words import in_brackets, within_sentence

_REASON = 90
"""Characters of a reason in the line of what was not judged."""
_OF_DEVICES = (
    FindingKind.HOST_SYNC,
    FindingKind.PAGEABLE_COPIES,
    FindingKind.COPY_BOUND,
    FindingKind.THROTTLING,
    FindingKind.IDLE_DEVICE,
)
"""What a job on CPUs cannot have."""


def finding_text(finding: Finding) -> str:
    """``Straggler: rank 0 … (costs 14.0 % of the step; confidence: high)``. Costs that a replay
    predicts say so; the others are sums of the times that were waited or spent."""
    predicted = ""
    if finding.cost_basis is CostBasis.REPLAY:
        predicted = ", predicted by replay"
    cost = ""
    if finding.cost_percent:
        cost = f"costs {cost_words(finding)}{predicted}; "
    return f"{finding.kind.label}: {finding.summary} ({cost}confidence: {confidence_text(finding)})"


def finding_title(finding: Finding) -> str:
    """``Straggler: rank 1``."""
    if finding.rank is None:
        return finding.kind.label
    return f"{finding.kind.label}: rank {finding.rank}"


def cost_words(finding: Finding) -> str:
    """``51.4 % of the step``: the one value of a cause. Empty where it cannot be told."""
    if finding.cost_percent:
        return f"{format_percent(finding.cost_percent / 100)} of the step"
    return ""


def confidence_text(finding: Finding) -> str:
    """``high``; ``low (contended)`` where the conditions could make what was found."""
    return finding.confidence.value + in_brackets(", ".join(finding.doubts))


def not_judged(abstentions: Sequence[Abstention], *, on_device: bool) -> str:
    """``Not judged: host-bound, throttling (not measured); straggler (one of 4 ranks is here)``:
    a line, with the beginning of each reason. Empty without any.

    Args:
        abstentions: Their whole reasons are in the JSON and in the report.
        on_device: Whether the job runs on devices; of one that does not, kinds of devices are left
            out.
    """
    kinds: dict[str, list[str]] = {}
    for item in abstentions:
        if on_device or item.kind not in _OF_DEVICES:
            beginning = textwrap.shorten(item.reason.partition(": ")[0], _REASON, placeholder=" …")
            kinds.setdefault(beginning, []).append(within_sentence(item.kind.label))
    if not kinds:
        return ""
    groups = (f"{', '.join(dict.fromkeys(names))} ({why})" for why, names in kinds.items())
    return f"Not judged: {'; '.join(groups)}"
