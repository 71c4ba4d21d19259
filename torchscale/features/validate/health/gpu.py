"""Health rules for GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.rule import (
    DRIVER,
    DRIVER_IF_ANY,
    GPUS,
    HealthRules,
    RuleOutcome,
    failed,
    not_applicable,
    passed,
    warned,
)
from torchscale.features.validate.health.visibility import BUS_ORDER, visible
from torchscale.schema.node.probe import DriverFacts, GpuFacts, NodeFacts
from torchscale.util.units import format_bytes

HOT_CELSIUS = 85
"""Data centre GPUs lower their clocks from about 85 to 90 °C; an idle GPU is far below."""
USED_SHARE = 0.05
"""The driver itself reserves about 1 % of the memory; more than this is data of another process."""

GPU_RULES = HealthRules()


@GPU_RULES.rule_on_node("gpus", "GPUs", "GPUs", DRIVER)
def gpus_present(driver: DriverFacts, facts: NodeFacts) -> RuleOutcome:
    """Lists the GPUs; different models in one node are a warning."""
    gpus = driver.gpus
    if driver.error is not None and not driver.missing:
        advice = "reboot after a driver update; restart the container; see nvidia-smi and dmesg"
        return failed(
            f"the driver does not respond: {driver.error}",
            "a working NVIDIA driver",
            advice,
            fixes.DRIVER_BROKEN,
        )
    if driver.unreadable:
        advice = "drain the node and reboot; see dmesg for Xid messages"
        return failed("; ".join(driver.unreadable), "every GPU responds", advice, fixes.GPU_LOST)
    if not gpus:
        return _no_gpus(driver, facts)
    kinds = Counter(_kind(gpu) for gpu in gpus)
    seen = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
    if len(kinds) > 1:
        advice = "the slowest GPU limits all ranks; select equal GPUs with launch.devices"
        return warned(seen, "one kind", advice, fixes.ONLY_EQUAL_GPUS)
    return passed(seen)


@GPU_RULES.rule("gpu_visibility", "GPUs", "CUDA_VISIBLE_DEVICES", DRIVER_IF_ANY)
def gpu_visibility(driver: DriverFacts) -> RuleOutcome:
    """Every entry of CUDA_VISIBLE_DEVICES names a GPU: CUDA silently ignores one that does not, and
    all behind it."""
    if not driver.gpus:
        return not_applicable("no GPU")
    if driver.visible_devices is None:
        return passed("not set: all GPUs are visible")
    if driver.visible_devices in ("", "-1", "NoDevFiles"):
        seen = f"{driver.visible_devices!r} hides all GPUs"
        return warned(seen, "GPUs to use", "unset CUDA_VISIBLE_DEVICES", fixes.VISIBLE_DEVICES)
    choice = visible(driver.visible_devices, driver)
    count, total = len(choice.entries), len(driver.gpus)
    if choice.ignored:
        seen = (
            f"{choice.reason}; CUDA ignores {', '.join(choice.ignored)} and uses {count or 'none'} "
            f"of {total}"
        )
        advice = "list UUIDs as `nvidia-smi -L` shows them"
        return warned(seen, "GPUs of this node, each once", advice, fixes.VISIBLE_DEVICES)
    numbers = [gpu.index for gpu in choice.gpus if gpu is not None]
    if len(numbers) < len(choice.gpus):
        seen = (
            f"{driver.visible_devices}: CUDA counts GPUs of different kinds from the fastest, "
            "nvidia-smi by PCI address"
        )
        advice = f"set CUDA_DEVICE_ORDER={BUS_ORDER}, or list UUIDs"
        return warned(seen, "an order that nvidia-smi shows too", advice, fixes.BUS_ORDER)
    if any(entry.startswith("MIG-") for entry in choice.entries) and count > 1:
        seen = f"{count} MIG slices: a process can use one"
        advice = "a rank that sees several slices uses the first"
        return warned(seen, "one slice for each process", advice, fixes.VISIBLE_DEVICES)
    return passed(f"GPU {', '.join(map(str, numbers))} of {total}")


@GPU_RULES.rule("gpu_modes", "GPUs", "compute and persistence mode", GPUS)
def gpu_modes(gpus: tuple[GpuFacts, ...]) -> RuleOutcome:
    """Processes may use the GPUs, and the driver stays loaded between them."""
    known = [gpu for gpu in gpus if gpu.compute_mode is not None or gpu.persistence is not None]
    if not known:
        return nothing_known(gpus)
    prohibited = [gpu for gpu in known if gpu.compute_mode == "prohibited"]
    if prohibited:
        seen = f"no process may use {', '.join(map(gpu_name, prohibited))}"
        commands = fixes.gpu_commands(prohibited, *fixes.COMPUTE_MODE)
        return failed(
            seen,
            "compute mode default",
            "set the compute mode: nvidia-smi -c DEFAULT",
            commands,
        )
    exclusive = [gpu for gpu in known if gpu.compute_mode == "exclusive process"]
    if exclusive:
        seen = f"one process at a time on {', '.join(map(gpu_name, exclusive))}"
        advice = "`hardware` opens all GPUs in rank 0; the other ranks then fail"
        return warned(seen, "default", advice, fixes.gpu_commands(exclusive, *fixes.COMPUTE_MODE))
    unloaded = [gpu for gpu in known if gpu.persistence is False]
    if unloaded:
        seen = f"persistence is off on GPU {', '.join(str(gpu.index) for gpu in unloaded)}"
        advice = (
            "each launch waits seconds for the driver, and clocks start low; use "
            "nvidia-persistenced"
        )
        return warned(seen, "on", advice, fixes.gpu_commands(unloaded, *fixes.PERSISTENCE))
    return passed("default, persistence on")


@GPU_RULES.rule("gpu_ecc", "GPUs", "ECC", GPUS)
def gpu_ecc(gpus: tuple[GpuFacts, ...]) -> RuleOutcome:
    """No uncorrected memory errors since the driver was loaded, and memory rows remapped without
    trouble."""
    known = [gpu for gpu in gpus if gpu.ecc_enabled is not None]
    if not known:
        return not_applicable("no GPU with ECC")
    failures = [gpu for gpu in known if gpu.remapping_failed]
    if failures:
        seen = f"memory rows could not be remapped on {', '.join(map(gpu_name, failures))}"
        commands = fixes.gpu_commands(failures, *fixes.ECC_REPLACE)
        return failed(
            seen,
            "spare rows for damaged ones",
            "drain the node and replace the GPU",
            commands,
        )
    bad = [gpu for gpu in known if gpu.ecc_uncorrected]
    if bad:
        seen = (
            "uncorrected errors: "
            f"{', '.join(f'{gpu_name(gpu)}: {gpu.ecc_uncorrected}' for gpu in bad)}"
        )
        advice = "drain the node; reset or replace the GPU (nvidia-smi -q -d ECC,ROW_REMAPPER)"
        return failed(seen, "none", advice, fixes.gpu_commands(bad, *fixes.ECC_RESET))
    pending = [gpu for gpu in known if gpu.remapping_pending]
    if pending:
        advice = "drain the node and reset the GPU (nvidia-smi -q -d ROW_REMAPPER)"
        seen = f"remapping of memory rows is pending on {', '.join(map(gpu_name, pending))}"
        return warned(seen, "none pending", advice, fixes.gpu_commands(pending, *fixes.ECC_RESET))
    off = [gpu for gpu in known if not gpu.ecc_enabled]
    if off:
        seen = f"off on GPU {', '.join(str(gpu.index) for gpu in off)}"
        advice = "memory errors are not detected; enable with nvidia-smi -e 1"
        return warned(seen, "on", advice, fixes.gpu_commands(off, *fixes.ECC_ON))
    uncounted = [str(gpu.index) for gpu in known if gpu.ecc_uncorrected is None]
    if uncounted:
        return not_applicable(
            f"on, but the driver reports no error count for GPU {', '.join(uncounted)}"
        )
    ever = sum(gpu.ecc_uncorrected_ever or 0 for gpu in known)
    seen = "on, no uncorrected errors"
    if ever:
        seen += f" since the driver was loaded; {ever} earlier"
    return passed(seen)


@GPU_RULES.rule("gpu_throttling", "GPUs", "throttling", GPUS)
def gpu_throttling(gpus: tuple[GpuFacts, ...]) -> RuleOutcome:
    """No clock throttling caused by temperature or power."""
    known = [gpu for gpu in gpus if gpu.throttle_reasons is not None]
    if not known:
        return nothing_known(gpus)
    slow = [gpu for gpu in known if gpu.throttle_reasons]
    if slow:
        seen = "; ".join(
            f"{gpu_name(gpu)}: {', '.join(gpu.throttle_reasons or ())}" for gpu in slow
        )
        advice = "check cooling and power: nvidia-smi -q -d PERFORMANCE"
        return warned(seen, "none", advice, fixes.gpu_commands(slow, *fixes.PERFORMANCE))
    return passed("none")


@GPU_RULES.rule("gpu_temperature", "GPUs", "temperature", GPUS)
def gpu_temperature(gpus: tuple[GpuFacts, ...]) -> RuleOutcome:
    """No GPU is hot before a measurement starts."""
    known = [(gpu, gpu.temperature_celsius) for gpu in gpus if gpu.temperature_celsius is not None]
    if not known:
        return nothing_known(gpus)
    hot = [(gpu, degrees) for gpu, degrees in known if degrees > HOT_CELSIUS]
    if hot:
        seen = ", ".join(f"{gpu_name(gpu)}: {degrees} °C" for gpu, degrees in hot)
        commands = fixes.gpu_commands((gpu for gpu, _ in hot), *fixes.PERFORMANCE)
        return warned(
            seen,
            f"at most {HOT_CELSIUS} °C",
            "check cooling; wait until it is idle",
            commands,
        )
    return passed(f"at most {max(degrees for _, degrees in known)} °C")


@GPU_RULES.rule("gpu_idle", "GPUs", "other processes", GPUS)
def gpu_idle(gpus: tuple[GpuFacts, ...]) -> RuleOutcome:
    """No other processes use the GPUs."""
    known = [
        gpu
        for gpu in gpus
        if gpu.foreign_processes is not None or gpu.memory_used_bytes is not None
    ]
    if not known:
        return nothing_known(gpus)
    in_use = [
        f"{gpu_name(gpu)}: {', '.join(gpu.foreign_processes)}"
        for gpu in known
        if gpu.foreign_processes
    ]
    in_use += [_used(gpu) for gpu in known if not gpu.foreign_processes and _is_used(gpu)]
    if in_use:
        advice = "their load distorts every measurement; wait, or select other GPUs"
        used = (gpu for gpu in known if gpu.foreign_processes or _is_used(gpu))
        return warned("; ".join(in_use), "none", advice, fixes.gpu_commands(used, *fixes.PROCESSES))
    silent = [str(gpu.index) for gpu in gpus if gpu.foreign_processes is None]
    if silent:
        return not_applicable(f"the driver lists no processes for GPU {', '.join(silent)}")
    return passed("none")


def _no_gpus(driver: DriverFacts, facts: NodeFacts) -> RuleOutcome:
    """A missing driver is correct on a node without GPUs, and a warning if GPUs are on the PCI
    bus."""
    seen = "none"
    if driver.error:
        seen = f"none ({driver.error})"
    software = facts.software
    if software is not None and software.rocm_built is not None:
        return not_applicable(
            f"{software.cuda_devices or 0} by ROCm, which NVIDIA's NVML does not read"
        )
    if facts.host is None or not facts.host.nvidia_devices:
        return not_applicable(seen)
    advice = (
        "install or load the NVIDIA driver; in containers use --gpus all, with Slurm --gres=gpu; "
        "ignore on CPU-only jobs"
    )
    seen = f"{seen}, but {facts.host.nvidia_devices} on the PCI bus"
    return warned(seen, "a driver that makes them available", advice, fixes.DRIVER_MISSING)


def gpu_name(gpu: GpuFacts) -> str:
    """``GPU 3 (0000:9b:00.0, GPU-1b3f…)``, as nvidia-smi, the kernel's log and schedulers name it;
    with the number for ``launch.devices`` where that is another."""
    names = []
    if gpu.cuda_index is not None and gpu.cuda_index != gpu.index:
        names.append(f"launch.devices: {gpu.cuda_index}")
    names += [name for name in (gpu.pci_address, gpu.uuid) if name is not None]
    if not names:
        return f"GPU {gpu.index}"
    return f"GPU {gpu.index} ({', '.join(names)})"


def nothing_known(gpus: Sequence[GpuFacts]) -> RuleOutcome:
    """Why a rule about GPUs has nothing to judge."""
    if gpus:
        return not_applicable("not reported by the driver")
    return not_applicable("no GPU")


def _kind(gpu: GpuFacts) -> str:
    if gpu.memory_bytes is None:
        return gpu.name
    return f"{gpu.name} ({format_bytes(gpu.memory_bytes)})"


def _is_used(gpu: GpuFacts) -> bool:
    return bool(gpu.memory_bytes) and (gpu.memory_used_bytes or 0) > USED_SHARE * (
        gpu.memory_bytes or 0
    )


def _used(gpu: GpuFacts) -> str:
    return f"{gpu_name(gpu)}: {format_bytes(gpu.memory_used_bytes or 0)} in use"
