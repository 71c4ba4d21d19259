"""Whether the node is fit for training: rules from facts to checks; a rule without facts reports
them as missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchscale.analysis.health import fixes
from torchscale.analysis.health.burn_in import burn_in_checks
from torchscale.analysis.health.gpu import GPU_RULES
from torchscale.analysis.health.host import HOST_RULES
from torchscale.analysis.health.rule import (
    Rule,
    failed,
    gpus_of,
    not_applicable,
    passed,
    unknown,
    warned,
)
from torchscale.analysis.health.system import SYSTEM_RULES
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.check import Check, Status, Validation
from torchscale.schema.node.probe import DriverFacts, GpuFacts, NodeFacts, SoftwareFacts
from torchscale.version import DISTRIBUTION

OLDEST_PYTHON = (3, 10)
"""As requires-python in pyproject.toml."""
OLDEST_TORCH = (2, 6)
"""fully_shard (FSDP2) became public in this release."""
_FABRIC_ADVICE = (
    "GPUs on NVSwitch need the fabric manager, in the driver's version: systemctl status "
    "nvidia-fabricmanager; "
    "nvidia-smi -q | grep -A 2 Fabric"
)
_CUDA_ADVICE = (
    ("Error 802", _FABRIC_ADVICE, fixes.FABRIC_MANAGER),
    ("system not yet initialized", _FABRIC_ADVICE, fixes.FABRIC_MANAGER),
    (
        "Error 803",
        "the CUDA library does not fit the driver: remove cuda-compat from LD_LIBRARY_PATH, or "
        "reboot after an update",
        fixes.NO_COMPAT,
    ),
    (
        "Error 804",
        "cuda-compat supports data centre GPUs only: remove it from LD_LIBRARY_PATH and update "
        "the driver",
        fixes.NO_COMPAT,
    ),
    (
        "too old",
        "update the NVIDIA driver, or install a PyTorch for an older CUDA",
        fixes.DRIVER_UPDATE,
    ),
)
"""What helps against errors of cudaGetDeviceCount (CUDA runtime API, cudaError_t)."""
_CUDA_ADVICE_ELSE = "check CUDA_VISIBLE_DEVICES, the driver's version and /dev/nvidia* permissions"
_ROCM_ADVICE = (
    "check HIP_VISIBLE_DEVICES, the amdgpu driver, and that you may use /dev/kfd (groups video and "
    "render)"
)


@dataclass(frozen=True)
class Requirements:
    """Devices and tools that the caller requires; without them the node is not fit."""

    cuda: bool = False
    gpus: int = 0
    nccl: bool = False
    nsys: bool = False


def validate_facts(
    facts: NodeFacts, requirements: Requirements, burn_in: BurnIn | None = None
) -> Validation:
    """Runs every rule; the result holds all checks and the verdict."""
    facts = _with_cuda_indices(facts)
    checks = [
        rule(facts)
        for rule in (*_SOFTWARE_RULES, *GPU_RULES, *HOST_RULES, *SYSTEM_RULES, collective)
    ]
    if burn_in is not None:
        checks += burn_in_checks(burn_in, facts)
    checks += _required(facts, requirements)
    order = list(dict.fromkeys(check.group for check in checks))
    checks.sort(key=lambda check: order.index(check.group))
    fit = all(check.status is not Status.FAIL for check in checks)
    return Validation(
        fit=fit, verdict=_verdict(facts, checks), checks=tuple(checks), facts=facts, burn_in=burn_in
    )


def _with_cuda_indices(facts: NodeFacts) -> NodeFacts:
    """Each GPU with torch's index of it: NVML's order is that of the PCI bus, torch's that of
    CUDA_VISIBLE_DEVICES."""
    if facts.driver is None or facts.software is None:
        return facts
    indices = {
        uuid.removeprefix("GPU-"): index for index, uuid in enumerate(facts.software.cuda_uuids)
    }
    gpus = tuple(_with_cuda_index(gpu, indices) for gpu in facts.driver.gpus)
    return facts.model_copy(update={"driver": facts.driver.model_copy(update={"gpus": gpus})})


def _with_cuda_index(gpu: GpuFacts, indices: Mapping[str, int]) -> GpuFacts:
    if gpu.uuid is None:
        return gpu
    return gpu.model_copy(update={"cuda_index": indices.get(gpu.uuid.removeprefix("GPU-"))})


def lacks_required_device(validation: Validation) -> bool:
    """Whether a required device or tool is missing on this machine."""
    return any(
        check.id.startswith("require_") and check.status is Status.FAIL
        for check in validation.checks
    )


def python_version(facts: NodeFacts) -> Check:
    """The Python version is supported."""
    rule = ("python", "software", "Python")
    if facts.software is None:
        return unknown(rule, facts.unknown.get("software"))
    if version_numbers(facts.software.python) < OLDEST_PYTHON:
        return failed(
            rule, facts.software.python, "3.10 or newer", "use a newer Python", fixes.PYTHON
        )
    return passed(rule, facts.software.python)


def own_package(facts: NodeFacts) -> Check:
    """No other project's package of the name ``torchscale`` is installed."""
    rule = ("package", "software", "package torchscale")
    if facts.software is None or facts.software.namesakes is None:
        return not_applicable(rule, "not read")
    others = facts.software.namesakes
    if not others:
        return passed(rule, f"of {DISTRIBUTION} alone")
    seen = f"also of {', '.join(others)}, in the same folder"
    advice = (
        "whichever is installed or removed last breaks the other: install each in an environment of "
        "its own"
    )
    return warned(rule, seen, f"{DISTRIBUTION} alone", advice, facts.software.namesake_fixes)


def torch_version(facts: NodeFacts) -> Check:
    """PyTorch can be imported, and its version is supported."""
    rule = ("torch", "software", "PyTorch")
    software = facts.software
    if software is None:
        return unknown(rule, facts.unknown.get("software"))
    if software.torch is None:
        if "No module named 'torch'" in (software.torch_error or ""):
            advice = f"install the extra that brings PyTorch: {fixes.TORCH_MISSING[0]}"
            return failed(rule, "not installed", "2.6 or newer", advice, fixes.TORCH_MISSING)
        seen = f"cannot be imported: {software.torch_error}"
        advice = "reinstall torch; see the message for the library at fault"
        return failed(rule, seen, "a working import", advice, fixes.TORCH_BROKEN)
    if version_numbers(software.torch) < OLDEST_TORCH:
        return failed(
            rule, software.torch, "2.6 or newer", "pip install --upgrade torch", fixes.TORCH_OLD
        )
    return passed(rule, software.torch)


def cuda_runtime(facts: NodeFacts) -> Check:
    """The driver supports the CUDA version of PyTorch."""
    rule = ("cuda_runtime", "software", "CUDA runtime")
    software, driver = facts.software, facts.driver
    if software is not None and software.rocm_built is not None:
        return _rocm_runtime(rule, software)
    if driver is None:
        return unknown(rule, facts.unknown.get("driver"))
    if software is None:
        return unknown(rule, facts.unknown.get("software"))
    if software.torch is None:
        return not_applicable(rule, "PyTorch cannot be imported")
    if not driver.gpus:
        return not_applicable(rule, _no_gpu(driver))
    if software.cuda_built is None:
        return failed(
            rule,
            f"PyTorch {software.torch} was built without CUDA, but the node has "
            f"{len(driver.gpus)} GPUs",
            "a CUDA build of PyTorch",
            "install torch from the index for your CUDA version (pytorch.org, Get Started)",
            fixes.torch_for(driver.cuda_version),
        )
    seen = (
        f"PyTorch's CUDA {software.cuda_built}, driver {driver.version} supports up to "
        f"{driver.cuda_version}"
    )
    if not software.cuda_available:
        error = software.cuda_error or ""
        helps = ((advice, commands) for sign, advice, commands in _CUDA_ADVICE if sign in error)
        advice, commands = next(helps, (_CUDA_ADVICE_ELSE, fixes.CUDA_DEVICES))
        seen = f"{seen}; torch.cuda.is_available() is false"
        if error:
            seen = f"{seen}: {error}"
        return failed(rule, seen, "a usable CUDA device", advice, commands)
    return _runtime_for_driver(rule, seen, software.cuda_built, driver.cuda_version)


def _no_gpu(driver: DriverFacts) -> str:
    """``no GPU``, with the driver's error if there is one."""
    if not driver.error:
        return "no GPU"
    return f"no GPU ({driver.error})"


def _runtime_for_driver(rule: Rule, seen: str, cuda: str, driver_cuda: str | None) -> Check:
    """The driver is at least as new as PyTorch's CUDA."""
    if driver_cuda is None:
        return passed(rule, seen)
    built, supported = version_numbers(cuda), version_numbers(driver_cuda)
    if built[:1] > supported[:1]:
        advice = (
            "PyTorch can use it, through CUDA's compatibility package (cuda-compat); update the "
            "driver to be safe"
        )
        return warned(
            rule, seen, "a driver at least as new as the runtime", advice, fixes.DRIVER_UPDATE
        )
    if built > supported:
        advice = "works through CUDA minor-version compatibility; update the driver to be safe"
        return warned(
            rule, seen, "a driver at least as new as the runtime", advice, fixes.DRIVER_UPDATE
        )
    return passed(rule, seen)


def _rocm_runtime(rule: Rule, software: SoftwareFacts) -> Check:
    """PyTorch can use a device; nothing reads AMD's driver."""
    seen = f"PyTorch's ROCm {software.rocm_built}, {software.cuda_devices or 0} devices"
    if not software.cuda_available:
        return failed(rule, seen, "a usable ROCm device", _ROCM_ADVICE, fixes.ROCM_DEVICES)
    return passed(rule, f"{seen}; driver, clocks, temperature and ECC of AMD GPUs are not read")


def nccl_version(facts: NodeFacts) -> Check:
    """NCCL is available if there are CUDA devices."""
    rule = ("nccl", "software", "NCCL")
    software = facts.software
    if software is None or not software.cuda_available:
        return not_applicable(rule, "no CUDA device: gloo is used")
    if software.nccl is None:
        commands = fixes.torch_for(None)
        if facts.driver is not None:
            commands = fixes.torch_for(facts.driver.cuda_version)
        advice = "install a CUDA build of PyTorch for Linux"
        return failed(rule, "PyTorch was built without NCCL", "NCCL", advice, commands)
    if software.rocm_built is None:
        return passed(rule, software.nccl)
    return passed(rule, f"RCCL {software.nccl}")


def collective(facts: NodeFacts) -> Check:
    """An all-reduce gives the correct sum in every element: over all usable GPUs, or over two CPU
    ranks."""
    rule = ("collective", "collective", "all-reduce")
    allreduce = facts.collective
    if allreduce is None:
        return unknown(rule, facts.unknown.get("collective", "not run"))
    if facts.software is not None and facts.software.torch is None:
        return not_applicable(rule, "not run: PyTorch cannot be imported")
    if allreduce.error is not None:
        advice = "check the loopback interface and firewall"
        commands: fixes.Fixes = fixes.LOOPBACK
        if allreduce.backend == "nccl":
            advice, commands = "run with NCCL_DEBUG=INFO", fixes.NCCL_DEBUG
        return failed(
            rule,
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
        return failed(rule, seen, "every element exact", advice, commands)
    what = "CPU rank"
    if allreduce.backend == "nccl":
        what = "GPU"
    ranks = f"{allreduce.world_size} {what}{'s' * (allreduce.world_size != 1)}"
    seen = f"{allreduce.backend}, {ranks}: {allreduce.elements:,} elements per rank exact"
    if allreduce.seconds is not None:
        seen += f", 1 MiB in {allreduce.seconds * 1e3:.2f} ms"
    return passed(rule, seen)


_SOFTWARE_RULES: tuple[Callable[[NodeFacts], Check], ...] = (
    python_version,
    own_package,
    torch_version,
    cuda_runtime,
    nccl_version,
)


def version_numbers(version: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` → ``(2, 13, 0)``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        return ()
    return tuple(int(part) for part in match[0].split("."))


def _required(facts: NodeFacts, requirements: Requirements) -> list[Check]:
    checks = []
    if requirements.cuda or requirements.gpus:
        checks.append(_required_cuda(facts))
    if requirements.gpus:
        checks.append(_required_gpus(_cuda_devices(facts), requirements.gpus))
    if requirements.nccl:
        checks.append(_required_nccl(facts))
    if requirements.nsys:
        checks.append(_required_nsys(facts))
    return checks


def _required_cuda(facts: NodeFacts) -> Check:
    rule = ("require_cuda", "required", "CUDA")
    if facts.software is not None and facts.software.cuda_available:
        return passed(rule, "usable")
    why = "PyTorch sees no CUDA device"
    if facts.driver is not None and facts.driver.error:
        why = facts.driver.error
    return failed(rule, why, "a usable CUDA device", "see the checks above", fixes.CUDA_DEVICES)


def _cuda_devices(facts: NodeFacts) -> int | None:
    if facts.software is None:
        return None
    return facts.software.cuda_devices


def _required_gpus(devices: int | None, least: int) -> Check:
    rule = ("require_gpus", "required", "GPUs")
    seen = "unknown"
    if devices is not None:
        seen = f"{devices} available to PyTorch"
    if devices is not None and devices >= least:
        return passed(rule, seen)
    advice = "check nvidia-smi -L and CUDA_VISIBLE_DEVICES"
    return failed(rule, seen, f"at least {least}", advice, fixes.CUDA_DEVICES)


def _required_nccl(facts: NodeFacts) -> Check:
    rule = ("require_nccl", "required", "NCCL")
    if facts.software is not None and facts.software.nccl:
        return passed(rule, facts.software.nccl)
    advice = "install a CUDA build of PyTorch for Linux, on a machine with a GPU"
    return failed(rule, "not usable", "NCCL and a GPU", advice, fixes.CUDA_DEVICES)


def _required_nsys(facts: NodeFacts) -> Check:
    """One that cannot write reports does not meet the requirement."""
    rule = ("require_nsys", "required", "Nsight Systems")
    profiler = facts.nsys
    if profiler is not None and profiler.path is not None and profiler.can_export is not False:
        return passed(rule, profiler.path)
    seen = "not found"
    if profiler is not None and profiler.path is not None:
        seen = f"cannot write reports: {profiler.problem or 'its importer is not installed'}"
    return failed(
        rule, seen, "nsys on PATH, complete", "install the full nsight-systems package", fixes.NSYS
    )


def _verdict(facts: NodeFacts, checks: list[Check]) -> str:
    failures = [check.title for check in checks if check.status is Status.FAIL]
    warnings = [check.title for check in checks if check.status is Status.WARN]
    more = ""
    if warnings:
        more = f" {len(warnings)} warning{'s' * (len(warnings) > 1)}: {', '.join(warnings)}."
    if failures:
        return f"Not fit: {', '.join(failures)} failed.{more}"
    devices = _cuda_devices(facts)
    if devices:
        tested, present = 0, len(gpus_of(facts))
        if facts.collective is not None and facts.collective.backend == "nccl":
            tested = facts.collective.world_size
        if tested < devices:
            more = f" The all-reduce ran on {tested or 'none'} of them.{more}"
        if present > devices:
            return f"Fit for training on {devices} of {present} GPUs.{more}"
        return f"Fit for training on {devices} GPU{'s' * (devices != 1)}.{more}"
    if facts.driver is None or devices is None:
        return f"Fit for CPU benchmarking; GPU presence is unknown.{more}"
    return f"Fit for CPU benchmarking: no CUDA GPU found.{more}"
