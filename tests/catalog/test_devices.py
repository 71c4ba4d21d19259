"""Names as drivers give them."""

from __future__ import annotations

import pytest

from torchscale.catalog.devices import DEVICES, find_device


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GH200 480GB", "GH200 96 GB"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144 GB"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI325X", "MI325X"),
    ],
)
def test_a_device_is_known_by_its_drivers_name(name: str, title: str) -> None:
    facts = find_device(name)
    assert facts is not None
    assert facts.title == title


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "",
    ],
)
def test_a_slice_has_no_rates_of_the_whole_and_a_stranger_none(name: str) -> None:
    assert find_device(name) is None


def test_narrower_types_are_at_least_as_fast() -> None:
    for device in DEVICES:
        rates = [
            device.peak_flops[name]
            for name in ("fp32", "tf32", "bf16", "fp8", "mxfp8", "nvfp4")
            if name in device.peak_flops
        ]
        assert rates == sorted(rates), device.title
        assert device.memory_bytes_per_second > 1e11
