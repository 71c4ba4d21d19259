from __future__ import annotations

import pytest

from torchscale.features.validate.health.gpu import gpu_visibility
from torchscale.features.validate.health.visibility import visible
from torchscale.schema.node.probe import DriverFacts, GpuFacts, NodeFacts

SLICES = ("MIG-1", "MIG-2")


def driver(*names: str, **changes: str) -> DriverFacts:
    """GPUs of these kinds; the first one has two slices."""
    gpus = [
        GpuFacts(index=index, name=name, uuid=f"GPU-{index}abc", slices=() if index else SLICES)
        for index, name in enumerate(names)
    ]
    return DriverFacts(gpus=tuple(gpus), **changes)


@pytest.mark.parametrize(
    ("variable", "indices"),
    [
        ("0", [0]),
        ("1, 0", [1, 0]),
        ("GPU-1", [1]),
        ("GPU-1abc,GPU-0abc", [1, 0]),
        ("MIG-2", [0]),
        ("MIG-GPU-1abc/7/0", [1]),
    ],
)
def test_what_entries_name(variable: str, indices: list[int]) -> None:
    choice = visible(variable, driver("H100", "H100"))
    assert [gpu.index for gpu in choice.gpus if gpu is not None] == indices
    assert choice.ignored == ()


@pytest.mark.parametrize(
    ("variable", "used", "ignored"),
    [
        ("0,2,1", ("0",), ("2", "1")),
        ("GPU-1,GPU-9", ("GPU-1",), ("GPU-9",)),
        ("MIG-3", (), ("MIG-3",)),
        ("0,,1", ("0",), ("", "1")),
        ("1,1", (), ("1", "1")),
        ("GPU-1,GPU-1a", (), ("GPU-1", "GPU-1a")),
    ],
)
def test_what_cuda_ignores(variable: str, used: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    choice = visible(variable, driver("H100", "H100"))
    assert (choice.entries, choice.ignored) == (used, ignored)
    assert choice.reason


def test_numbers_of_unlike_gpus_are_known_in_the_order_of_the_bus_alone() -> None:
    assert visible("0,1", driver("T4", "H100")).gpus == (None, None)
    ordered = driver("T4", "H100", device_order="PCI_BUS_ID")
    assert [gpu.name for gpu in visible("0,1", ordered).gpus if gpu is not None] == ["T4", "H100"]
    assert [gpu.name for gpu in visible("GPU-1", driver("T4", "H100")).gpus if gpu is not None] == [
        "H100"
    ]


@pytest.mark.parametrize(
    ("facts", "status", "part"),
    [
        (driver("H100"), "pass", "not set"),
        (driver("H100", visible_devices=""), "warn", "hides all"),
        (driver("H100", visible_devices="-1"), "warn", "hides all"),
        (driver("T4", "H100", visible_devices="1"), "warn", "from the fastest"),
        (driver("H100", visible_devices="MIG-1,MIG-2"), "warn", "2 MIG slices"),
        (driver("H100", "H100", visible_devices="1"), "pass", "GPU 1 of 2"),
    ],
)
def test_the_check(facts: DriverFacts, status: str, part: str) -> None:
    check = gpu_visibility(NodeFacts(driver=facts))
    assert check.status.value == status
    assert part in check.seen
