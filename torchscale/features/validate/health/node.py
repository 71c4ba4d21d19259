"""Whether the node is fit for training: rules from facts to checks; a rule without facts reports
them as missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.catalog.backends import is_nccl
from torchscale.features.validate.health.answer import answer
from torchscale.features.validate.health.burn_in_checks import burn_in_checks
from torchscale.features.validate.health.collective import COLLECTIVE_RULES
from torchscale.features.validate.health.disposition import part_verdicts, unseen
from torchscale.features.validate.health.gpu import GPU_RULES
from torchscale.features.validate.health.host import HOST_RULES
from torchscale.features.validate.health.interconnect import INTERCONNECT_RULES
from torchscale.features.validate.health.kernel_log import KERNEL_LOG_RULES
from torchscale.features.validate.health.required import Requirements, required_checks
from torchscale.features.validate.health.rule import cuda_devices_of, gpus_of
from torchscale.features.validate.health.software import SOFTWARE_RULES
from torchscale.features.validate.health.system import SYSTEM_RULES
from torchscale.schema.node.acceptance import Acceptance
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import GpuFacts, NodeFacts
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation


def validate_facts(
    facts: NodeFacts,
    requirements: Requirements,
    burn_in: BurnIn | None = None,
    acceptance: Acceptance | None = None,
    *,
    policy: Policy | None = None,
) -> Validation:
    """Runs every rule, and judges the figures of an acceptance; the result holds all checks and the
    verdict.

    Args:
        facts: Of the node.
        requirements: What it must have.
        burn_in: What a burn-in saw.
        acceptance: What the rounds of an acceptance measured.
        policy: What *keep* asks for; ``None``: the default, where there is an acceptance.
    """
    facts = _with_cuda_indices(facts)
    speeds: Sequence[Check] = ()
    if acceptance is not None:
        policy = policy or Policy()
        acceptance, speeds = _judged(acceptance, facts, policy)
    checks = [
        rule(facts)
        for rule in (
            *SOFTWARE_RULES,
            *GPU_RULES,
            *KERNEL_LOG_RULES,
            *INTERCONNECT_RULES,
            *HOST_RULES,
            *SYSTEM_RULES,
            *COLLECTIVE_RULES,
        )
    ]
    if burn_in is not None:
        checks += burn_in_checks(burn_in, facts)
    checks += speeds
    checks += required_checks(facts, requirements)
    order = list(dict.fromkeys(check.group for check in checks))
    checks.sort(key=lambda check: order.index(check.group))
    said = verdict_of(facts, checks)
    return _answered(
        facts, checks, said=said, burn_in=burn_in, acceptance=acceptance, policy=policy
    )


def judged_alone(acceptance: Acceptance) -> Validation:
    """What the rounds of an acceptance say where the checks and facts of its node were not kept:
    never *keep*."""
    facts, policy = NodeFacts(), Policy()
    acceptance, checks = _judged(acceptance, facts, policy)
    found = _answered(facts, checks, said="", burn_in=None, acceptance=acceptance, policy=policy)
    if found.disposition is Disposition.KEEP:
        parts = tuple(map(_without_checks, found.parts))
        disposition, verdict = answer("", parts, policy, fit=True)
        update = {"parts": parts, "disposition": disposition, "verdict": verdict}
        found = found.model_copy(update=update)
    return found.model_copy(update={"unseen": ("the checks of the node", *found.unseen)})


def _without_checks(part: PartVerdict) -> PartVerdict:
    update = {
        "disposition": Disposition.UNDECIDED,
        "action": "validate it again",
        "reasons": ("the checks of the node were not kept",),
    }
    return part.model_copy(update=update)


def _answered(
    facts: NodeFacts,
    checks: Sequence[Check],
    *,
    said: str,
    burn_in: BurnIn | None,
    acceptance: Acceptance | None,
    policy: Policy | None,
) -> Validation:
    """The answer that follows from all checks; ``said`` is the verdict without an acceptance."""
    fit = all(check.status is not Status.FAIL for check in checks)
    parts = part_verdicts(facts, checks, burn_in, acceptance, policy or Policy())
    disposition, verdict = answer(said, parts, policy, fit=fit)
    return Validation(
        fit=fit,
        disposition=disposition,
        verdict=verdict,
        checks=tuple(checks),
        facts=facts,
        burn_in=burn_in,
        acceptance=acceptance,
        policy=policy,
        parts=parts,
        unseen=unseen(facts, burn_in, acceptance),
    )


def _judged(
    acceptance: Acceptance, facts: NodeFacts, policy: Policy
) -> tuple[Acceptance, Sequence[Check]]:
    """The acceptance with its figures judged, and their checks."""
    from torchscale.features.validate.acceptance.checks import speed_checks  # noqa: PLC0415 - with statistics, which few checks need
    from torchscale.features.validate.acceptance.judge import judge  # noqa: PLC0415

    figures = judge(acceptance.run, acceptance.baseline, power_limits(facts), policy)
    acceptance = acceptance.model_copy(update={"figures": figures})
    return acceptance, speed_checks(acceptance, policy)


def power_limits(facts: NodeFacts) -> dict[str, float]:
    """Watts by UUID, without NVML's prefix."""
    return {
        bare_uuid(gpu.uuid): gpu.power_limit_watts
        for gpu in gpus_of(facts)
        if gpu.uuid is not None and gpu.power_limit_watts is not None
    }


def _with_cuda_indices(facts: NodeFacts) -> NodeFacts:
    """Each GPU with torch's index of it: NVML's order is that of the PCI bus, torch's that of
    CUDA_VISIBLE_DEVICES."""
    if facts.driver is None or facts.software is None:
        return facts
    indices = {bare_uuid(uuid): index for index, uuid in enumerate(facts.software.cuda_uuids)}
    gpus = tuple(_with_cuda_index(gpu, indices) for gpu in facts.driver.gpus)
    return facts.model_copy(update={"driver": facts.driver.model_copy(update={"gpus": gpus})})


def _with_cuda_index(gpu: GpuFacts, indices: Mapping[str, int]) -> GpuFacts:
    if gpu.uuid is None:
        return gpu
    return gpu.model_copy(update={"cuda_index": indices.get(bare_uuid(gpu.uuid))})


def verdict_of(facts: NodeFacts, checks: Sequence[Check]) -> str:
    """What the checks say, in a sentence."""
    failures = [check.title for check in checks if check.status is Status.FAIL]
    warnings = [check.title for check in checks if check.status is Status.WARN]
    more = ""
    if warnings:
        more = f" {len(warnings)} warning{'s' * (len(warnings) > 1)}: {', '.join(warnings)}."
    if failures:
        return f"Not fit: {', '.join(failures)} failed.{more}"
    devices = cuda_devices_of(facts)
    if devices:
        tested, present = 0, len(gpus_of(facts))
        if facts.collective is not None and is_nccl(facts.collective.backend):
            tested = facts.collective.world_size
        if tested < devices:
            more = f" The all-reduce ran on {tested or 'none'} of them.{more}"
        if present > devices:
            return f"Fit for training on {devices} of {present} GPUs.{more}"
        return f"Fit for training on {devices} GPU{'s' * (devices != 1)}.{more}"
    if facts.driver is None or devices is None:
        return f"Fit for CPU benchmarking; GPU presence is unknown.{more}"
    return f"Fit for CPU benchmarking: no CUDA GPU found.{more}"
