"""Health rule for the errors that NVIDIA's driver has written to the kernel's log."""

from __future__ import annotations

from collections.abc import Iterable

from torchscale.catalog.xids import XID_NAMES, GpuAction, sxid_action, xid_action
from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.gpu import gpu_name
from torchscale.features.validate.health.rule import (
    KERNEL,
    HealthRules,
    RuleOutcome,
    failed,
    gpus_of,
    not_applicable,
    passed,
    warned,
)
from torchscale.schema.node.probe import DriverMessage, GpuFacts, KernelLogFacts, NodeFacts
from torchscale.util.units import format_coarse_seconds

KERNEL_LOG_RULES = HealthRules()

_OF_PROGRAMS = (GpuAction.NOTHING, GpuAction.RESTART_PROGRAM)
"""Faults of programs, and what follows other errors: no fault of the node."""
_FAILING = (GpuAction.CHECK_POWER, GpuAction.RESET, GpuAction.REBOOT, GpuAction.REPLACE)
"""Until it is done the GPU may stop, or compute with wrong data."""
_ORDER = list(GpuAction)
_MOST_SHOWN = 6


@KERNEL_LOG_RULES.rule_on_node("gpu_errors", "GPUs", "errors in the kernel's log", KERNEL)
def gpu_errors(log: KernelLogFacts, facts: NodeFacts) -> RuleOutcome:
    """No error since the node was started that asks for a reset, a reboot or a replacement."""
    gpus = gpus_of(facts)
    if log.error is not None:
        if not gpus:
            return not_applicable("no GPU")
        return not_applicable(f"the log cannot be read: {log.error}")
    if not gpus and not log.messages:
        return not_applicable("no GPU")
    of_node = [message for message in log.messages if action_of(message) not in _OF_PROGRAMS]
    if not of_node:
        return passed(_only_programs(log))
    of_node.sort(key=lambda message: -_ORDER.index(action_of(message)))
    shown = [described(message, gpus) for message in of_node[:_MOST_SHOWN]]
    if len(of_node) > _MOST_SHOWN:
        shown.append(f"{len(of_node) - _MOST_SHOWN} more")
    actions = sorted({action_of(message) for message in of_node}, key=_ORDER.index, reverse=True)
    advice = "; ".join(_asked_for(action, of_node, gpus) for action in actions)
    commands = _commands(of_node, gpus)
    if any(action in _FAILING for action in actions):
        return failed("; ".join(shown), "none", advice, commands)
    return warned("; ".join(shown), "none", advice, commands)


def action_of(message: DriverMessage) -> GpuAction:
    """What the error asks for."""
    if message.kind == "xid":
        return xid_action(message.code, message.text)
    return sxid_action(message.text)


def described(message: DriverMessage, gpus: Iterable[GpuFacts]) -> str:
    """``GPU 3 (0000:9b:00.0, GPU-1b3f…): Xid 79 (GPU has fallen off the bus), 2 times, the last one
    45 s ago``."""
    return f"{place_of(message, gpus)}: {said(message)}"


def said(message: DriverMessage) -> str:
    """What came, how often and when; not where."""
    kind, name = "SXid", message.text
    if message.kind == "xid":
        kind, name = "Xid", XID_NAMES.get(message.code, "")
    text = f"{kind} {message.code}"
    if name:
        text += f" ({name})"
    age = format_coarse_seconds(message.last_seconds_ago)
    if message.times == 1:
        return f"{text}, {age} ago"
    return f"{text}, {message.times} times, the last one {age} ago"


def place_of(message: DriverMessage, gpus: Iterable[GpuFacts]) -> str:
    """The GPU, or the switch, by its PCI address where the driver does not list it."""
    if message.kind == "sxid":
        return f"NVSwitch {message.pci_address}"
    gpu = gpu_at(message.pci_address, gpus)
    if gpu is None:
        return f"the GPU at {message.pci_address}"
    return gpu_name(gpu)


def gpu_at(address: str, gpus: Iterable[GpuFacts]) -> GpuFacts | None:
    """The GPU at a PCI address, of which the kernel's log leaves out the function."""
    wanted = _slot(address)
    return next((gpu for gpu in gpus if _slot(gpu.pci_address or "") == wanted), None)


def _slot(address: str) -> str:
    """Domain, bus and device; the domain with four digits."""
    parts = address.lower().partition(".")[0].split(":")
    return ":".join([part.lstrip("0").rjust(4, "0") for part in parts[:-2]] + parts[-2:])


def _only_programs(log: KernelLogFacts) -> str:
    seen = "none"
    if log.covered_seconds is not None:
        seen = f"none in {format_coarse_seconds(log.covered_seconds)}"
    codes = sorted({message.code for message in log.messages if message.kind == "xid"})
    if codes:
        numbers = ", ".join(map(str, codes))
        seen += f" of the node; Xid {numbers} of programs, or following another"
    return seen


def _asked_for(
    action: GpuAction, messages: Iterable[DriverMessage], gpus: Iterable[GpuFacts]
) -> str:
    """``reset the GPU: GPU 3 (…)``."""
    gpus = tuple(gpus)
    places = [place_of(message, gpus) for message in messages if action_of(message) is action]
    return f"{action.value}: {', '.join(dict.fromkeys(places))}"


def _commands(messages: Iterable[DriverMessage], gpus: Iterable[GpuFacts]) -> fixes.Fixes:
    gpus = tuple(gpus)
    actions = {action_of(message) for message in messages}
    commands: fixes.Fixes = fixes.KERNEL_LOG
    for message in messages:
        gpu = gpu_at(message.pci_address, gpus)
        if gpu is not None and action_of(message) is GpuAction.RESET:
            commands += fixes.gpu_commands([gpu], fixes.ECC_RESET[1])
    if actions & {GpuAction.REBOOT, GpuAction.REPLACE}:
        commands += fixes.REBOOT
    return tuple(dict.fromkeys(commands))
