"""Access to NVML, the driver's library, that returns ``None`` for what a GPU or driver does not
support."""

from __future__ import annotations

from typing import Any

THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of nvmlClocksThrottleReason* that mean a problem; idle, application clocks and the power cap
do not."""


_PREFIXES = ("GPU-", "MIG-")


class Driver:
    """Calls functions of the module ``pynvml`` (or a substitute), which the caller has
    initialized."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def ask(self, function: str, *arguments: object) -> Any:
        """The result of NVML's ``function``; ``None`` where it fails or is missing."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except (self.nvml.NVMLError, AttributeError):
            return None

    def whole(self, function: str, *arguments: object) -> int | None:
        """A result that is an integer; ``None`` where the function fails."""
        answer = self.ask(function, *arguments)
        if answer is None:
            return None
        return int(answer)

    def text(self, function: str, *arguments: object) -> str | None:
        """A result that is text (older versions of pynvml return bytes); ``None`` where the
        function fails."""
        answer: str | bytes | None = self.ask(function, *arguments)
        if isinstance(answer, bytes):
            return answer.decode()
        return answer

    def throttle_reasons(self, handle: Any) -> tuple[str, ...] | None:
        """Why a GPU runs at lower clocks now; empty where it does not, ``None`` where the driver
        does not report it."""
        bits = self.whole("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if bits is None:
            return None
        return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)

    def handle(self, uuid: str) -> Any:
        """The GPU, or the slice of one (MIG), with this UUID, with or without NVML's prefix;
        ``None`` where there is none. torch gives both without."""
        if uuid.startswith(_PREFIXES):
            return self.ask("nvmlDeviceGetHandleByUUID", uuid)
        handles = (self.ask("nvmlDeviceGetHandleByUUID", prefix + uuid) for prefix in _PREFIXES)
        return next((handle for handle in handles if handle is not None), None)


def device_address(driver: Driver, handle: Any) -> str | None:
    """PCI address of a GPU as the kernel writes it."""
    info = driver.ask("nvmlDeviceGetPciInfo", handle)
    if info is None:
        return None
    return pci_address(info.domain, info.bus, info.device)


def pci_address(domain: int, bus: int, device: int) -> str:
    """``0000:17:00.0``, as the kernel writes it; NVML's own text has eight digits of domain."""
    return f"{int(domain):04x}:{int(bus):02x}:{int(device):02x}.0"
