"""Rules from signals to causes. Each says what it needs and abstains where that was not measured; definitions and
limits in ``docs/diagnosis.md``."""

from __future__ import annotations

from functools import lru_cache

from torchscale.analysis.rule import MIN_COMPARED, Rule
from torchscale.analysis.rules_device import host_bound, host_sync, memory_pressure, pageable_copies, throttling
from torchscale.analysis.rules_exchange import exposed_communication, slow_link, small_buckets, sync_variance
from torchscale.analysis.rules_ranks import input_pipeline, load_imbalance, pauses, straggler
from torchscale.analysis.signals import Signals
from torchscale.schema.finding import Abstention, Confidence, Diagnosis, Finding, FindingKind


def diagnose(signals: Signals) -> Diagnosis:
    """Every rule in turn, each knowing what was found before it; the costliest finding first."""
    findings: list[Finding] = []
    abstentions: list[Abstention] = []
    for rule in _RULES:
        missing = dict.fromkeys(_NAMES[need] for need in rule.needs if getattr(signals, need) is None)
        if missing:
            abstentions.append(_abstention(rule.kind, f"not measured: {', '.join(missing)}"))
            continue
        judgement = rule.judge(signals, tuple(findings))
        if isinstance(judgement, Finding):
            doubtful = not signals.trusted
            findings.append(judgement.model_copy(update={"confidence": Confidence.LOW}) if doubtful else judgement)
        elif isinstance(judgement, str):
            abstentions.append(_abstention(rule.kind, judgement))
    findings.sort(key=lambda finding: -finding.cost_percent)
    return Diagnosis(findings=tuple(findings), abstentions=tuple(abstentions))


@lru_cache(maxsize=256)
def _abstention(kind: FindingKind, reason: str) -> Abstention:
    return Abstention(kind=kind, reason=reason)  # thousands of cells share a few


_RULES = (
    Rule(FindingKind.INPUT_PIPELINE, ("data_wait",), input_pipeline),
    Rule(FindingKind.STRAGGLER, ("own", "wait", "charge"), straggler),
    Rule(FindingKind.PAUSES, ("pauses",), pauses),
    Rule(FindingKind.LOAD_IMBALANCE, ("wait", "charge"), load_imbalance),
    Rule(FindingKind.SMALL_BUCKETS, ("bucket_bytes", "probe", "transfer"), small_buckets),
    Rule(FindingKind.SLOW_LINK, ("probe", "link_bytes_per_second", "transfer"), slow_link),
    Rule(FindingKind.EXPOSED_COMMUNICATION, ("transfer",), exposed_communication),
    Rule(FindingKind.SYNC_VARIANCE, ("exposed_p50", "exposed_p95"), sync_variance),
    Rule(FindingKind.HOST_BOUND, ("host_bound",), host_bound),
    Rule(FindingKind.HOST_SYNC, ("readbacks", "readback_wait"), host_sync),
    Rule(FindingKind.PAGEABLE_COPIES, ("pageable",), pageable_copies),
    Rule(FindingKind.THROTTLING, ("throttled",), throttling),
    Rule(FindingKind.MEMORY_PRESSURE, (), memory_pressure),
)

_NAMES = {
    "own": "each rank's own time per step",
    "wait": "waits at collectives, compared over ranks",
    "charge": "who arrives last",
    "data_wait": "waits for data",
    "pauses": f"at least {MIN_COMPARED} steps, one by one",
    "bucket_bytes": "bucket sizes",
    "probe": "the link alone",
    "transfer": "exposed communication",
    "link_bytes_per_second": "what the link is rated at",
    "exposed_p50": f"exposed communication of at least {MIN_COMPARED} steps",
    "exposed_p95": f"exposed communication of at least {MIN_COMPARED} steps",
    "host_bound": "when work was handed to the device",
    "readbacks": "values read back from the device",
    "readback_wait": "the host's waits for the device",
    "pageable": "the memory that copies go from and to",
    "throttled": "reasons for lowered clocks",
}
