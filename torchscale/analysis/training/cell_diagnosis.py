"""What the diagnosis says of a training cell: what more than half of its launches say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.signals import Signals
from torchscale.analysis.training.flags import DOUBTING, Flag
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.profiles.finding import Confidence, Diagnosis, Finding, FindingKind


def diagnose_cell(
    launches: Sequence[Signals | None],
    pooled: Signals | None,
    ranks: Sequence[RankRecord],
    flags: Sequence[Flag] = (),
) -> Diagnosis | None:
    """What more than half of the launches say, with figures of all of them together.

    Args:
        launches: Signals of each.
        pooled: Signals of all of them, by
            :func:`~torchscale.analysis.training.pooling.pool_signals`.
        ranks: Ranks of the first launch: their devices are named beside them.
        flags: Flags of the cell: some of them lower the confidence.
    """
    judged = [diagnose(signals) for signals in launches if signals is not None]
    if not judged or pooled is None:
        return None
    agreed, diagnoses = judged[0].findings, judged
    if len(judged) > 1:
        together = diagnose(pooled)
        agreed = _of_most(together.findings, judged)
        diagnoses = [together, *judged]
    findings = tuple(with_doubts(_with_place(item, ranks), flags) for item in agreed)
    named = {finding.kind for finding in findings}
    abstained = [
        item for diagnosis in diagnoses for item in diagnosis.abstentions if item.kind not in named
    ]
    return Diagnosis(findings=findings, abstentions=tuple(dict.fromkeys(abstained)))


def _of_most(findings: Sequence[Finding], launches: Sequence[Diagnosis]) -> tuple[Finding, ...]:
    """Those that more than half of the launches have."""
    return tuple(
        item
        for item in findings
        if sum(any(_agree(item, one) for one in launch.findings) for launch in launches)
        > len(launches) / 2
    )


def with_doubts(finding: Finding, flags: Collection[Flag]) -> Finding:
    """The finding, of low confidence where ``flags`` are a reason to doubt it."""
    doubts = tuple(flag.value for flag in DOUBTING if flag in flags)
    if not doubts:
        return finding
    return finding.model_copy(update={"confidence": Confidence.LOW, "doubts": doubts})


def _agree(finding: Finding, other: Finding) -> bool:
    """Whether two findings are of one cause. Pauses of which a launch has too few to name their
    rank are those of the rank that another names."""
    unnamed = finding.kind is FindingKind.PAUSES and None in (finding.rank, other.rank)
    return finding.kind is other.kind and (finding.rank == other.rank or unnamed)


_OF_LINKS = (FindingKind.SLOW_LINK, FindingKind.EXPOSED_COMMUNICATION, FindingKind.SYNC_VARIANCE)
"""Findings about what is between ranks."""


def _with_place(finding: Finding, ranks: Sequence[RankRecord]) -> Finding:
    """Names the GPU of the rank that a finding blames, so that it can be found in the machine, and
    in a launch over several machines the host; both ends of the link where the finding is about the
    link."""
    rank = next((rank for rank in ranks if rank.rank == finding.rank), None)
    evidence, hosts = finding.evidence, tuple(dict.fromkeys(rank.hostname for rank in ranks))
    if rank is not None and rank.device.kind != "cpu":
        device = (
            f"rank {rank.rank}: GPU {rank.device.index} of {rank.hostname}, "
            f"{rank.device.uuid or rank.device.name}"
        )
        evidence = (*evidence, device)
    elif rank is not None and len(hosts) > 1:
        evidence = (*evidence, f"rank {rank.rank} ran on {rank.hostname}")
    if len(hosts) < 2 and evidence == finding.evidence:
        return finding
    if len(hosts) < 2:
        return finding.model_copy(update={"evidence": evidence})
    if rank is not None:
        return finding.model_copy(update={"evidence": evidence, "hosts": (rank.hostname,)})
    if finding.kind in _OF_LINKS:
        between = f"among {len(hosts)} nodes"
        if len(hosts) == 2:
            between = f"between {hosts[0]} and {hosts[1]}"
        return finding.model_copy(
            update={"evidence": (*evidence, f"the ranks communicate {between}"), "hosts": hosts}
        )
    return finding
