"""What the caller of ``validate`` requires, as checks."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import RuleOutcome, cuda_devices_of, failed, passed
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.probe import NodeFacts
from torchscale.schema.node.validation import Validation


@dataclass(frozen=True)
class Requirements:
    """Devices and tools that the caller requires; without them the node is not fit."""

    cuda: bool = False
    gpus: int = 0
    nccl: bool = False
    nsys: bool = False


def required_checks(facts: NodeFacts, requirements: Requirements) -> list[Check]:
    """One check for each requirement; it fails where the node does not meet it."""
    checks = []
    if requirements.cuda or requirements.gpus:
        checks.append(_required_cuda(facts).check("require_cuda", "required", "CUDA"))
    if requirements.gpus:
        checks.append(
            _required_gpus(cuda_devices_of(facts), requirements.gpus).check(
                "require_gpus", "required", "GPUs"
            )
        )
    if requirements.nccl:
        checks.append(_required_nccl(facts).check("require_nccl", "required", "NCCL"))
    if requirements.nsys:
        checks.append(_required_nsys(facts).check("require_nsys", "required", "Nsight Systems"))
    return checks


def lacks_required_device(validation: Validation) -> bool:
    """Whether a required device or tool is missing on this machine."""
    return any(
        check.id.startswith("require_") and check.status is Status.FAIL
        for check in validation.checks
    )


def _required_cuda(facts: NodeFacts) -> RuleOutcome:
    if facts.software is not None and facts.software.cuda_available:
        return passed("usable")
    why = "PyTorch sees no CUDA device"
    if facts.driver is not None and facts.driver.error:
        why = facts.driver.error
    advice = "check nvidia-smi, CUDA_VISIBLE_DEVICES and PyTorch's CUDA build"
    return failed(why, "a usable CUDA device", advice, fixes.CUDA_DEVICES)


def _required_gpus(devices: int | None, least: int) -> RuleOutcome:
    seen = "unknown"
    if devices is not None:
        seen = f"{devices} available to PyTorch"
    if devices is not None and devices >= least:
        return passed(seen)
    advice = "check nvidia-smi -L and CUDA_VISIBLE_DEVICES"
    return failed(seen, f"at least {least}", advice, fixes.CUDA_DEVICES)


def _required_nccl(facts: NodeFacts) -> RuleOutcome:
    if facts.software is not None and facts.software.nccl:
        return passed(facts.software.nccl)
    advice = "install a CUDA build of PyTorch for Linux, on a machine with a GPU"
    return failed("not usable", "NCCL and a GPU", advice, fixes.CUDA_DEVICES)


def _required_nsys(facts: NodeFacts) -> RuleOutcome:
    """One that cannot write reports does not meet the requirement."""
    profiler = facts.nsys
    if profiler is not None and profiler.path is not None and profiler.can_export is not False:
        return passed(profiler.path)
    seen = "not found"
    if profiler is not None and profiler.path is not None:
        seen = f"cannot write reports: {profiler.problem or 'its importer is not installed'}"
    return failed(
        seen, "nsys on PATH, complete", "install the full nsight-systems package", fixes.NSYS
    )
