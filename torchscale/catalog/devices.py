"""Devices: documented dense peak rates and memory bandwidth, found by the driver's device name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_T = 1e12


@dataclass(frozen=True)
class DeviceFacts:
    """A device as its maker documents it.

    Attributes:
        title: Common name.
        peak_flops: Dense FLOP/s per dtype, without sparsity; fp32 is outside tensor cores. Of mxfp8
            that of fp8: data sheets have one figure for both.
        memory_bytes_per_second: Bandwidth of the device's memory.
        source: The document that the figures are from.
    """

    title: str
    peak_flops: Mapping[str, float]
    memory_bytes_per_second: float
    source: str


def _facts(title: str, memory: float, source: str, **peaks: float) -> DeviceFacts:
    return DeviceFacts(
        title, MappingProxyType({name: value * _T for name, value in peaks.items()}), memory, source
    )


_H100_SXM = {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9}
_MI300X = {
    "fp64": 81.7,
    "fp32": 163.4,
    "tf32": 653.7,
    "fp16": 1307.4,
    "bf16": 1307.4,
    "fp8": 2614.9,
}
"""fp64 outside matrix cores, as for the others; matrix cores have twice that."""
_A100 = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}

_ALL: tuple[tuple[tuple[str, ...], DeviceFacts], ...] = (
    # The first entry all of whose words are in the driver's name wins: narrower names come first.
    (
        ("GB200",),
        _facts(
            "GB200",
            8.0e12,
            "NVIDIA GB200 NVL72 data sheet",
            tf32=1250.0,
            fp16=2500.0,
            bf16=2500.0,
            fp8=5000.0,
            mxfp8=5000.0,
            nvfp4=10000.0,
        ),
    ),
    (
        ("B200",),
        _facts(
            "B200",
            8.0e12,
            "NVIDIA B200 data sheet",
            tf32=1125.0,
            fp16=2250.0,
            bf16=2250.0,
            fp8=4500.0,
            mxfp8=4500.0,
            nvfp4=9000.0,
        ),
    ),
    (
        ("H200", "NVL"),
        _facts(
            "H200 NVL",
            4.8e12,
            "NVIDIA H200 data sheet",
            fp64=60.0,
            fp32=60.0,
            tf32=417.5,
            fp16=835.5,
            bf16=835.5,
            fp8=1670.5,
        ),
    ),
    (("H200",), _facts("H200 SXM", 4.8e12, "NVIDIA H200 data sheet", **_H100_SXM)),
    (("GH200", "144G"), _facts("GH200 144 GB", 4.9e12, "NVIDIA GH200 data sheet", **_H100_SXM)),
    (("GH200",), _facts("GH200 96 GB", 4.0e12, "NVIDIA GH200 data sheet", **_H100_SXM)),
    (
        ("H20",),
        _facts(
            "H20",
            4.0e12,
            "NVIDIA H20 data sheet",
            fp32=44.0,
            tf32=74.0,
            fp16=148.0,
            bf16=148.0,
            fp8=296.0,
        ),
    ),
    (
        ("H100", "PCIe"),
        _facts(
            "H100 PCIe",
            2.0e12,
            "NVIDIA H100 data sheet",
            fp32=51.2,
            tf32=378.0,
            fp16=756.0,
            bf16=756.0,
            fp8=1513.0,
        ),
    ),
    (
        ("H100", "NVL"),
        _facts(
            "H100 NVL",
            3.9e12,
            "NVIDIA H100 data sheet",
            fp32=60.0,
            tf32=417.5,
            fp16=835.5,
            bf16=835.5,
            fp8=1671.0,
        ),
    ),
    (("H100",), _facts("H100 SXM", 3.35e12, "NVIDIA H100 data sheet", **_H100_SXM)),
    (
        ("A100", "80GB", "PCIe"),
        _facts("A100 80 GB PCIe", 1.935e12, "NVIDIA A100 data sheet", **_A100),
    ),
    (("A100", "80GB"), _facts("A100 80 GB SXM", 2.039e12, "NVIDIA A100 data sheet", **_A100)),
    (("A100",), _facts("A100 40 GB", 1.555e12, "NVIDIA A100 data sheet", **_A100)),
    (
        ("V100", "SXM2"),
        _facts("V100 SXM2", 0.9e12, "NVIDIA V100 data sheet", fp64=7.8, fp32=15.7, fp16=125.0),
    ),
    (
        ("V100", "PCIE"),
        _facts("V100 PCIe", 0.9e12, "NVIDIA V100 data sheet", fp64=7.0, fp32=14.0, fp16=112.0),
    ),
    (
        ("L40S",),
        _facts(
            "L40S",
            0.864e12,
            "NVIDIA L40S data sheet",
            fp32=91.6,
            tf32=183.0,
            fp16=362.0,
            bf16=362.0,
            fp8=733.0,
        ),
    ),
    (
        ("L4",),
        _facts(
            "L4",
            0.3e12,
            "NVIDIA L4 data sheet",
            fp32=30.3,
            tf32=60.0,
            fp16=121.0,
            bf16=121.0,
            fp8=242.5,
        ),
    ),
    (
        ("A10G",),
        _facts("A10G", 0.6e12, "AWS G5 documentation", fp32=31.5, tf32=35.0, fp16=70.0, bf16=70.0),
    ),
    (
        ("A10",),
        _facts(
            "A10", 0.6e12, "NVIDIA A10 data sheet", fp32=31.2, tf32=62.5, fp16=125.0, bf16=125.0
        ),
    ),
    # GeForce cards add up in fp32 at half the rate of fp16; torch adds up in fp32.
    (
        ("RTX", "5090"),
        _facts(
            "RTX 5090",
            1.792e12,
            "NVIDIA Blackwell white paper",
            fp32=104.8,
            tf32=104.8,
            fp16=209.5,
            bf16=209.5,
            fp8=419.0,
        ),
    ),
    (
        ("RTX", "4090"),
        _facts(
            "RTX 4090",
            1.008e12,
            "NVIDIA Ada white paper",
            fp32=82.6,
            tf32=82.6,
            fp16=165.2,
            bf16=165.2,
            fp8=330.3,
        ),
    ),
    # The Max-Q and Server editions have other clocks, and no entry.
    (
        ("RTX", "PRO", "6000", "Blackwell", "Workstation"),
        _facts(
            "RTX PRO 6000",
            1.792e12,
            "NVIDIA RTX PRO white paper",
            fp32=126.0,
            tf32=251.9,
            fp16=503.8,
            bf16=503.8,
            fp8=1007.6,
        ),
    ),
    (
        ("RTX", "6000", "Ada"),
        _facts(
            "RTX 6000 Ada",
            0.96e12,
            "NVIDIA Ada white paper",
            fp32=91.1,
            tf32=182.1,
            fp16=364.2,
            bf16=364.2,
            fp8=728.5,
        ),
    ),
    (("MI325X",), _facts("MI325X", 6.0e12, "AMD Instinct MI325X data sheet", **_MI300X)),
    (("MI300X",), _facts("MI300X", 5.3e12, "AMD Instinct MI300X data sheet", **_MI300X)),
    (("T4",), _facts("T4", 0.32e12, "NVIDIA T4 data sheet", fp32=8.1, fp16=65.0)),
)


MIN_CAPABILITY: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9), "mxfp8": (10, 0), "nvfp4": (10, 0)}
)
"""Compute capability from which tensor cores have the type: Ampere, Ada for fp8, and Blackwell for
types with a scale for each block. torch computes tf32 and bf16 on older GPUs too, at the speed of
fp32 or below."""

BLOCK_SCALED: Mapping[str, int] = MappingProxyType({"mxfp8": 32, "nvfp4": 128})
"""Types with a scale for each block of elements → what each size of a product must be a multiple of
in torchao's kernels (``mxfp8_quantize_cuda``, ``nvfp4_mm_triton``)."""
TORCHAO = "0.18"
"""The first torchao with training products of these types where they are looked for."""

DEVICES: tuple[DeviceFacts, ...] = tuple(facts for _, facts in _ALL)
"""Every device of the catalogue."""


_LESSER = {"MIG", "Laptop", "Max", "D"}
"""Words in the names of slices, and of versions for laptops, for less power (Max-Q) and for export
(RTX 4090 D)."""


def find_device(name: str) -> DeviceFacts | None:
    """The device with the driver's name ``name``; ``None`` if it is not in the catalogue (it then
    has no peak rate), or is a slice of one (``NVIDIA H100 80GB HBM3 MIG 1g.10gb``) or a version
    with lower rates."""
    words = set(name.replace("-", " ").replace("_", " ").split())
    if words & _LESSER:
        return None
    for required, facts in _ALL:
        if all(word in words for word in required):
            return facts
    return None
