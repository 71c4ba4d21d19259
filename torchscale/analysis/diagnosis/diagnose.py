"""Runs the rules: from signals to causes. A rule names the signals that it needs and abstains where
one was not measured; definitions and limits in ``docs/diagnosis.md``."""

from __future__ import annotations

from functools import lru_cache

from torchscale.analysis.diagnosis.rule import DiagnosisRule
from torchscale.analysis.diagnosis.rules_communication import (
    exposed_communication,
    slow_link,
    small_buckets,
    sync_variance,
)
from torchscale.analysis.diagnosis.rules_copies import copy_bound, pageable_copies
from torchscale.analysis.diagnosis.rules_device import (
    host_bound,
    host_sync,
    memory_pressure,
    memory_returned,
    throttling,
)
from torchscale.analysis.diagnosis.rules_nodes import straggling_node
from torchscale.analysis.diagnosis.rules_pauses import pauses
from torchscale.analysis.diagnosis.rules_pipeline import (
    intermittent_peer,
    slow_peer,
    uneven_micro_batches,
    uneven_stages,
)
from torchscale.analysis.diagnosis.rules_ranks import (
    input_pipeline,
    load_imbalance,
)
from torchscale.analysis.diagnosis.rules_spells import intermittent_straggler
from torchscale.analysis.diagnosis.rules_straggler import straggler
from torchscale.analysis.diagnosis.signals import SignalName, Signals
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
    for rule in _RULES:
        if rule.of_several_ranks and len(signals.ranks) == 1:
            continue
        if rule.staged is not None and rule.staged is not signals.staged:
            continue
        missing = [need.value for need in rule.needs if need.read(signals) is None]
        if missing:
            abstentions.append(_abstention(rule.kind, f"not measured: {', '.join(missing)}"))
            continue
        judgement = rule.judge(signals, tuple(findings))
        if isinstance(judgement, Finding):
            doubtful = not signals.trusted
            findings.append(
                judgement.model_copy(update={"confidence": Confidence.LOW})
                if doubtful
                else judgement
            )
        elif isinstance(judgement, str):
            abstentions.append(_abstention(rule.kind, judgement))
    findings.sort(key=lambda finding: -finding.cost_percent)
    return Diagnosis(findings=tuple(findings), abstentions=tuple(abstentions))


@lru_cache(maxsize=256)
def _abstention(kind: FindingKind, reason: str) -> Abstention:
    return Abstention(kind=kind, reason=reason)  # thousands of cells share a few


_RULES = (
    DiagnosisRule(FindingKind.INPUT_PIPELINE, (SignalName.DATA_WAIT,), input_pipeline),
    DiagnosisRule(
        FindingKind.INTERMITTENT_STRAGGLER,
        (SignalName.WINDOWS, SignalName.WAIT, SignalName.BLAME),
        intermittent_straggler,
        of_several_ranks=True,
        staged=False,
    ),
    DiagnosisRule(
        FindingKind.INTERMITTENT_STRAGGLER,
        (SignalName.WINDOWS,),
        intermittent_peer,
        of_several_ranks=True,
        staged=True,
    ),
    DiagnosisRule(
        FindingKind.STRAGGLING_NODE,
        (SignalName.COMPUTE, SignalName.WAIT, SignalName.BLAME),
        straggling_node,
        of_several_ranks=True,
        staged=False,
    ),
    DiagnosisRule(
        FindingKind.STRAGGLER,
        (SignalName.COMPUTE, SignalName.WAIT, SignalName.BLAME),
        straggler,
        of_several_ranks=True,
        staged=False,
    ),
    DiagnosisRule(
        FindingKind.STRAGGLER, (SignalName.COMPUTE,), slow_peer, of_several_ranks=True, staged=True
    ),
    DiagnosisRule(
        FindingKind.UNEVEN_STAGES,
        (SignalName.COMPUTE,),
        uneven_stages,
        of_several_ranks=True,
        staged=True,
    ),
    DiagnosisRule(
        FindingKind.UNEVEN_MICRO_BATCHES,
        (SignalName.MICRO_BATCHES,),
        uneven_micro_batches,
        of_several_ranks=True,
        staged=True,
    ),
    DiagnosisRule(FindingKind.PAUSES, (SignalName.PAUSES,), pauses),
    DiagnosisRule(
        FindingKind.LOAD_IMBALANCE,
        (SignalName.WAIT, SignalName.BLAME),
        load_imbalance,
        of_several_ranks=True,
    ),
    DiagnosisRule(
        FindingKind.SMALL_BUCKETS,
        (SignalName.BUCKET_BYTES, SignalName.PROBE, SignalName.TRANSFER),
        small_buckets,
        of_several_ranks=True,
    ),
    DiagnosisRule(
        FindingKind.SLOW_LINK,
        (SignalName.PROBE, SignalName.LINK_RATE, SignalName.TRANSFER),
        slow_link,
        of_several_ranks=True,
    ),
    DiagnosisRule(
        FindingKind.EXPOSED_COMMUNICATION,
        (SignalName.TRANSFER,),
        exposed_communication,
        of_several_ranks=True,
    ),
    DiagnosisRule(
        FindingKind.SYNC_VARIANCE,
        (SignalName.EXPOSED_QUANTILES,),
        sync_variance,
        of_several_ranks=True,
    ),
    DiagnosisRule(FindingKind.HOST_BOUND, (SignalName.HOST_BOUND,), host_bound),
    DiagnosisRule(
        FindingKind.HOST_SYNC, (SignalName.READBACKS, SignalName.READBACK_WAIT), host_sync
    ),
    DiagnosisRule(FindingKind.PAGEABLE_COPIES, (SignalName.PAGEABLE,), pageable_copies),
    DiagnosisRule(FindingKind.COPY_BOUND, (SignalName.COPIES,), copy_bound),
    DiagnosisRule(FindingKind.THROTTLING, (SignalName.THROTTLED,), throttling),
    DiagnosisRule(FindingKind.MEMORY_PRESSURE, (), memory_pressure),
    DiagnosisRule(FindingKind.MEMORY_RETURNED, (), memory_returned),
)
"""In this order: a rule sees the findings of those before it, so that no cost is counted twice."""
