"""Health rules for Python, PyTorch, CUDA and NCCL."""

from __future__ import annotations

from torchscale.catalog.torch_versions import OLDEST_TORCH, untested
from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import (
    DRIVER,
    NODE,
    SOFTWARE,
    HealthRules,
    RuleOutcome,
    failed,
    not_applicable,
    passed,
    unknown,
    warned,
)
from torchscale.schema.node.probe import DriverFacts, NodeFacts, SoftwareFacts
from torchscale.util.versions import version_numbers
from torchscale.version import DISTRIBUTION

OLDEST_PYTHON = (3, 10)
"""Oldest supported Python, as requires-python in pyproject.toml."""
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

SOFTWARE_RULES = HealthRules()


@SOFTWARE_RULES.rule("python", "software", "Python", SOFTWARE)
def python_version(software: SoftwareFacts) -> RuleOutcome:
    """The Python version is supported."""
    if version_numbers(software.python) < OLDEST_PYTHON:
        return failed(software.python, "3.10 or newer", "use a newer Python", fixes.PYTHON)
    return passed(software.python)


@SOFTWARE_RULES.rule("package", "software", "package torchscale", NODE)
def own_package(facts: NodeFacts) -> RuleOutcome:
    """No other project's package of the name ``torchscale`` is installed."""
    if facts.software is None or facts.software.namesakes is None:
        return not_applicable("not read")
    others = facts.software.namesakes
    if not others:
        return passed(f"of {DISTRIBUTION} alone")
    seen = f"also of {', '.join(others)}, in the same folder"
    advice = (
        "whichever is installed or removed last breaks the other: install each in an environment of "
        "its own"
    )
    return warned(seen, f"{DISTRIBUTION} alone", advice, facts.software.namesake_fixes)


@SOFTWARE_RULES.rule("torch", "software", "PyTorch", SOFTWARE)
def torch_version(software: SoftwareFacts) -> RuleOutcome:
    """PyTorch can be imported, and its version is supported."""
    if software.torch is None:
        if "No module named 'torch'" in (software.torch_error or ""):
            command = software.torch_command or fixes.TORCH_MISSING
            advice = f"install PyTorch: {command}"
            return failed("not installed", "2.6 or newer", advice, (command,))
        seen = f"cannot be imported: {software.torch_error}"
        advice = "reinstall torch; see the message for the library at fault"
        return failed(seen, "a working import", advice, fixes.TORCH_BROKEN)
    if version_numbers(software.torch) < OLDEST_TORCH:
        return failed(
            software.torch, "2.6 or newer", "pip install --upgrade torch", fixes.TORCH_OLD
        )
    note = untested(software.torch)
    return passed(software.torch if note is None else f"{software.torch} ({note})")


@SOFTWARE_RULES.rule("cuda_runtime", "software", "CUDA runtime", NODE)
def cuda_runtime(facts: NodeFacts) -> RuleOutcome:
    """The driver supports the CUDA version of PyTorch."""
    software, driver = facts.software, facts.driver
    if software is not None and software.rocm_built is not None:
        return _rocm_runtime(software)
    if driver is None:
        return unknown(DRIVER.why_missing(facts))
    if software is None:
        return unknown(SOFTWARE.why_missing(facts))
    if software.torch is None:
        return not_applicable("PyTorch cannot be imported")
    if not driver.gpus:
        return not_applicable(_no_gpu(driver))
    if software.cuda_built is None:
        return failed(
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
        return failed(seen, "a usable CUDA device", advice, commands)
    return _runtime_for_driver(seen, software.cuda_built, driver.cuda_version)


def _no_gpu(driver: DriverFacts) -> str:
    """``no GPU``, with the driver's error if there is one."""
    if not driver.error:
        return "no GPU"
    return f"no GPU ({driver.error})"


def _runtime_for_driver(seen: str, cuda: str, driver_cuda: str | None) -> RuleOutcome:
    """The driver is at least as new as PyTorch's CUDA."""
    if driver_cuda is None:
        return passed(seen)
    built, supported = version_numbers(cuda), version_numbers(driver_cuda)
    if built[:1] > supported[:1]:
        advice = (
            "PyTorch can use it, through CUDA's compatibility package (cuda-compat); update the "
            "driver to be safe"
        )
        return warned(seen, "a driver at least as new as the runtime", advice, fixes.DRIVER_UPDATE)
    if built > supported:
        advice = "works through CUDA minor-version compatibility; update the driver to be safe"
        return warned(seen, "a driver at least as new as the runtime", advice, fixes.DRIVER_UPDATE)
    return passed(seen)


def _rocm_runtime(software: SoftwareFacts) -> RuleOutcome:
    """PyTorch can use a device; nothing reads AMD's driver."""
    seen = f"PyTorch's ROCm {software.rocm_built}, {software.cuda_devices or 0} devices"
    if not software.cuda_available:
        return failed(seen, "a usable ROCm device", _ROCM_ADVICE, fixes.ROCM_DEVICES)
    return passed(f"{seen}; driver, clocks, temperature and ECC of AMD GPUs are not read")


@SOFTWARE_RULES.rule("nccl", "software", "NCCL", NODE)
def nccl_version(facts: NodeFacts) -> RuleOutcome:
    """NCCL is available if there are CUDA devices."""
    software = facts.software
    if software is None or not software.cuda_available:
        return not_applicable("no CUDA device: gloo is used")
    if software.nccl is None:
        commands = fixes.torch_for(None)
        if facts.driver is not None:
            commands = fixes.torch_for(facts.driver.cuda_version)
        advice = "install a CUDA build of PyTorch for Linux"
        return failed("PyTorch was built without NCCL", "NCCL", advice, commands)
    if software.rocm_built is None:
        return passed(software.nccl)
    return passed(f"RCCL {software.nccl}")
