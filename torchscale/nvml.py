"""NVML, the driver's own library, asked so that what a GPU or a driver cannot answer is ``None``."""

from __future__ import annotations

from typing import Any

THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of the clock reasons that mean trouble; idle, application clocks and the power cap do not."""


class Driver:
    """NVML's module (or one like it), initialised by who makes this."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def ask(self, function: str, *arguments: object) -> Any:
        """The answer of one of NVML's functions, or ``None``."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except (self.nvml.NVMLError, AttributeError):
            return None

    def whole(self, function: str, *arguments: object) -> int | None:
        """An answer that is a number."""
        answer = self.ask(function, *arguments)
        return None if answer is None else int(answer)

    def text(self, function: str, *arguments: object) -> str | None:
        """An answer that is text; older versions of the module give bytes."""
        answer = self.ask(function, *arguments)
        return answer.decode() if isinstance(answer, bytes) else answer

    def throttle_reasons(self, handle: Any) -> tuple[str, ...] | None:
        """Why a GPU has lowered its clocks right now; empty where it has not."""
        bits = self.whole("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)

    def handle(self, uuid: str) -> Any:
        """The GPU with this UUID, with or without NVML's prefix; ``None`` where there is none."""
        return self.ask("nvmlDeviceGetHandleByUUID", uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
