"""Health rule for a collective: an all-reduce that really ran."""

from __future__ import annotations

from torchscale.catalog.backends import is_nccl
from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import (
    COLLECTIVE,
    HealthRules,
    RuleOutcome,
    failed,
    gpus_of,
    not_applicable,
    passed,
)
from torchscale.schema.node.probe import CollectiveFacts, NodeFacts

COLLECTIVE_RULES = HealthRules()


@COLLECTIVE_RULES.rule_on_node("collective", "collective", "all-reduce", COLLECTIVE)
def collective(allreduce: CollectiveFacts, facts: NodeFacts) -> RuleOutcome:
    """An all-reduce gives the correct sum in every element: over all usable GPUs, or over two CPU
    ranks."""
    if facts.software is not None and facts.software.torch is None:
        return not_applicable("not run: PyTorch cannot be imported")
    if allreduce.error is not None:
        advice = "check the loopback interface and firewall"
        commands: fixes.Fixes = fixes.LOOPBACK
        if is_nccl(allreduce.backend):
            advice, commands = "run with NCCL_DEBUG=INFO", fixes.NCCL_DEBUG
        return failed(
            f"{allreduce.backend}: {allreduce.error}",
            "a sum over all ranks",
            advice,
            commands,
        )
    if allreduce.wrong_elements:
        compared = allreduce.elements * allreduce.world_size
        seen = f"{allreduce.backend}: {allreduce.wrong_elements:,} of {compared:,} elements wrong"
        advice = "do not train on this node; check GPU memory (ECC), links and NCCL's version"
        commands = fixes.wrong_sums(gpus_of(facts))
        return failed(seen, "every element exact", advice, commands)
    what = "CPU rank"
    if is_nccl(allreduce.backend):
        what = "GPU"
    ranks = f"{allreduce.world_size} {what}{'s' * (allreduce.world_size != 1)}"
    seen = f"{allreduce.backend}, {ranks}: {allreduce.elements:,} elements per rank exact"
    if allreduce.seconds is not None:
        seen += f", 1 MiB in {allreduce.seconds * 1e3:.2f} ms"
    return passed(seen)
