"""Error counters of links: PCI Express and NVLink by the driver, network interfaces by the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchscale.util.control_groups import read_text

_NETWORKS = Path("/sys/class/net")
_OF_INTERFACES = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_missed_errors")
"""What a bad cable, port or overrun shows as; dropped packets have causes that are no fault."""


@dataclass(frozen=True)
class CounterReading:
    """One counter now. ``uuid``: of a GPU."""

    part: str
    counter: str
    value: int
    uuid: str | None = None


def network_counters(networks: Path = _NETWORKS) -> list[CounterReading]:
    """Error counters of all network interfaces but the loopback; none where the kernel has none.
    ``networks`` can be replaced for tests."""
    found = []
    for interface in sorted(networks.glob("*")):
        if interface.name == "lo":
            continue
        for name in _OF_INTERFACES:
            text = read_text(interface / "statistics" / name)
            if text.isdigit():
                found.append(CounterReading(interface.name, name, int(text)))
    return found
