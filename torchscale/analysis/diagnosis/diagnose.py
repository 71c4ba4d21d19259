"""Runs the rules: from signals to causes. A rule abstains where a signal that it needs was not
measured; definitions and limits in ``docs/diagnosis.md``."""

from __future__ import annotations

from functools import lru_cache

from torchscale.analysis.diagnosis.rules_communication import (
    exposed_communication,
    slow_link,
    small_buckets,
    sync_variance,
    unsplit_communication,
)
from torchscale.analysis.diagnosis.rules_copies import copy_bound, pageable_copies
from torchscale.analysis.diagnosis.rules_device import (
    host_bound,
    host_sync,
    memory_pressure,
    memory_returned,
    throttling,
)
from torchscale.analysis.diagnosis.rules_experts import slow_experts, uneven_experts
from torchscale.analysis.diagnosis.rules_idle import idle_device
from torchscale.analysis.diagnosis.rules_nodes import straggling_node
from torchscale.analysis.diagnosis.rules_pauses import pauses
from torchscale.analysis.diagnosis.rules_periods import periodic_straggler, periodic_work
from torchscale.analysis.diagnosis.rules_pipeline import (
    intermittent_peer,
    slow_peer,
    uneven_micro_batches,
    uneven_stages,
)
from torchscale.analysis.diagnosis.rules_ranks import (
    input_pipeline,
    load_imbalance,
    uneven_lengths,
)
from torchscale.analysis.diagnosis.rules_spells import intermittent_straggler
from torchscale.analysis.diagnosis.rules_straggler import straggler
from torchscale.analysis.diagnosis.signals import Signals
from torchscale.schema.profiles.finding import (
    Abstention,
    Confidence,
    Diagnosis,
    Finding,
    FindingKind,
)


def diagnose(signals: Signals) -> Diagnosis:
    """Every rule in turn, each given the findings of those before it; the costliest finding
    first."""
    findings: list[Finding] = []
    abstentions: list[Abstention] = []
    is_alone = signals.is_alone
    for rule in _RULES:
        if is_alone and rule.lacks_others(signals):
            abstentions.append(_abstention(rule.kind, f"one of {signals.job_ranks} ranks is here"))
        if not rule.applies_to(signals):
            continue
        judgement = rule.judge(signals, tuple(findings))
        if isinstance(judgement, str):
            abstentions.append(_abstention(rule.kind, judgement))
        elif judgement is not None and signals.trusted:
            findings.append(judgement)
        elif judgement is not None:
            findings.append(judgement.model_copy(update={"confidence": Confidence.LOW}))
    findings.sort(key=lambda finding: -finding.cost_percent)
    return Diagnosis(findings=tuple(findings), abstentions=tuple(abstentions))


@lru_cache(maxsize=256)
def _abstention(kind: FindingKind, reason: str) -> Abstention:
    return Abstention(kind=kind, reason=reason)  # thousands of cells share a few


_RULES = (
    input_pipeline,
    periodic_straggler,
    periodic_work,
    intermittent_straggler,
    intermittent_peer,
    straggling_node,
    straggler,
    slow_experts,
    uneven_experts,
    slow_peer,
    uneven_stages,
    uneven_micro_batches,
    pauses,
    uneven_lengths,
    load_imbalance,
    small_buckets,
    slow_link,
    exposed_communication,
    unsplit_communication,
    sync_variance,
    host_bound,
    host_sync,
    pageable_copies,
    copy_bound,
    throttling,
    memory_pressure,
    memory_returned,
    idle_device,
)
"""Rules in this order: a rule sees the findings of those before it, so that no cost is counted
twice."""
