"""What of a node's set-up is not as on most nodes: CPUs, power limits, versions."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping

from torchscale.features.validate.acceptance.causes import LOWER, Explanation
from torchscale.schema.node.acceptance import AcceptanceRun, Cause


def other_cpus(rank: int, runs: Mapping[int, AcceptanceRun]) -> Explanation | None:
    """Fewer CPUs than most nodes give the job."""
    cpus = {it: _fewest_cpus(run) for it, run in runs.items()}
    known = [count for count in cpus.values() if count is not None]
    own = cpus[rank]
    if own is None or not known or own >= statistics.median(known):
        return None
    because = f"{own} usable CPUs, most nodes have {statistics.median(known):.0f}"
    return Explanation(Cause.SETUP, because, "give the container or job as many CPUs")


def _fewest_cpus(run: AcceptanceRun) -> int | None:
    counts = [each.conditions.cpus for each in run.rounds if each.conditions.cpus is not None]
    return min(counts, default=None)


def usual_quota(runs: Mapping[int, AcceptanceRun]) -> float | None:
    """CPUs of the quota in the middle; ``None`` where most nodes have none."""
    quotas = sorted(map(_least_quota, runs.values()))
    usual = quotas[len(quotas) // 2]
    if math.isinf(usual):
        return None
    return usual


def _least_quota(run: AcceptanceRun) -> float:
    quotas = [each.conditions.quota_cpus for each in run.rounds]
    return min((quota for quota in quotas if quota is not None), default=math.inf)


def other_power(rank: int, power_limits: Mapping[int, Mapping[str, float]]) -> Explanation | None:
    """A lower power limit than on most nodes."""
    means = {it: statistics.fmean(each.values()) for it, each in power_limits.items() if each}
    if rank not in means:
        return None
    usual = statistics.median(means.values())
    if means[rank] >= usual * (1 - LOWER):
        return None
    because = f"power limits of {means[rank]:.0f} W, most nodes have {usual:.0f} W"
    return Explanation(Cause.SETUP, because, "set the same power limit (nvidia-smi -pl)")


def other_versions(rank: int, runs: Mapping[int, AcceptanceRun]) -> Explanation | None:
    """Versions that most nodes do not have."""
    names = sorted({name for run in runs.values() for name in run.versions})
    differing = []
    for name in names:
        (usual, _), *_ = Counter(
            run.versions.get(name, "none") for run in runs.values()
        ).most_common()
        own = runs[rank].versions.get(name, "none")
        if own != usual:
            differing.append(f"{name} {own} (most nodes: {usual})")
    if not differing:
        return None
    because = f"other versions than on most nodes: {', '.join(differing)}"
    return Explanation(Cause.UNCLEAR, because, "measure it with the same versions")
