"""Findings in words, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.schema.profiles.finding import Abstention, CostBasis, Finding
from torchscale.util.units import format_percent
from torchscale.util.words import in_brackets


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


def not_judged(abstentions: Sequence[Abstention]) -> str:
    """``Not judged: straggler, load imbalance (one of 4 ranks is here); …``."""
    kinds: dict[str, list[str]] = {}
    for item in abstentions:
        kinds.setdefault(item.reason, []).append(item.kind.label.lower())
    return "Not judged: " + "; ".join(
        f"{', '.join(names)} ({reason})" for reason, names in kinds.items()
    )
