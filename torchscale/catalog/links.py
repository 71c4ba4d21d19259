"""Links between devices: documented bandwidth per device and direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Link:
    """A link between devices.

    Attributes:
        name: Name in configs.
        title: Common name.
        bytes_per_second: Per device and direction, before any protocol's overhead.
        expected_share: Share of it that large messages should reach; a link below it is reported as
            slow. Our threshold, not the maker's: lowest for PCIe, which ranks share and NCCL
            crosses twice without P2P, and for Infinity Fabric, whose links each lead to one other
            device; highest for networks, whose large messages have little overhead.
    """

    name: str
    title: str
    bytes_per_second: float
    expected_share: float


_GB = 1e9
_ALL = (
    # NVLink: links per GPU × bandwidth per link and direction (NVIDIA's data sheets give both
    # directions together).
    Link("nvlink2", "NVLink 2 (V100: 6 × 25 GB/s)", 150 * _GB, 0.7),
    Link("nvlink3", "NVLink 3 (A100: 12 × 25 GB/s)", 300 * _GB, 0.7),
    Link("nvlink4", "NVLink 4 (H100, H200: 18 × 25 GB/s)", 450 * _GB, 0.7),
    Link("nvlink5", "NVLink 5 (B200: 18 × 50 GB/s)", 900 * _GB, 0.7),
    # AMD's Infinity Fabric between GPUs (xGMI): links to the seven others × bandwidth per
    # direction.
    Link("xgmi-mi300x", "Infinity Fabric (MI300X, MI325X: 7 × 64 GB/s)", 448 * _GB, 0.6),
    # PCI Express: lanes × transfers × 128/130 encoding (PCI-SIG base specifications 3.0 to 5.0).
    Link("pcie3-x16", "PCIe 3.0 x16", 15.75 * _GB, 0.6),
    Link("pcie4-x16", "PCIe 4.0 x16", 31.5 * _GB, 0.6),
    Link("pcie5-x16", "PCIe 5.0 x16", 63.0 * _GB, 0.6),
    # InfiniBand 4x: EDR 100, HDR 200, NDR 400 Gbit/s (InfiniBand Trade Association's roadmap).
    Link("ib-edr", "InfiniBand EDR", 12.5 * _GB, 0.8),
    Link("ib-hdr", "InfiniBand HDR", 25.0 * _GB, 0.8),
    Link("ib-ndr", "InfiniBand NDR", 50.0 * _GB, 0.8),
    Link("ethernet-1g", "Ethernet 1 Gbit/s", 0.125 * _GB, 0.8),
    Link("ethernet-10g", "Ethernet 10 Gbit/s", 1.25 * _GB, 0.8),
    Link("ethernet-25g", "Ethernet 25 Gbit/s", 3.125 * _GB, 0.8),
    Link("ethernet-100g", "Ethernet 100 Gbit/s", 12.5 * _GB, 0.8),
    Link("ethernet-400g", "Ethernet 400 Gbit/s", 50.0 * _GB, 0.8),
)

LINKS: Mapping[str, Link] = MappingProxyType({link.name: link for link in _ALL})
"""Every link of the catalogue by name."""

_NVLINK_BANDWIDTH = 25 * _GB
_NVLINK5_BANDWIDTH = 50 * _GB


def nvlink_bytes_per_second(links: int, capability: str | None) -> float | None:
    """Bytes per second per device and direction of ``links`` active NVLinks of a GPU with this
    compute capability; ``None`` where the generation is unknown.

    NVLink 2 to 4 carry 25 GB/s per link and direction, NVLink 5 (compute capability 10) 50.
    """
    if links < 1 or capability is None:
        return None
    major = int(capability.partition(".")[0])
    if major in (7, 8, 9):
        return links * _NVLINK_BANDWIDTH
    if major == 10:
        return links * _NVLINK5_BANDWIDTH
    return None
