"""Where a GPU sits, by torch or by the driver."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.util.nvml import Driver
from torchscale.worker.probe import devices as module


def nvml(info: object) -> SimpleNamespace:
    """A driver that knows the GPU ``GPU-1b3f``."""

    class NVMLError(Exception):
        """What it raises for others."""

    def by_uuid(uuid: str) -> str:
        if uuid != "GPU-1b3f":
            raise NVMLError
        return uuid

    return SimpleNamespace(
        NVMLError=NVMLError, nvmlDeviceGetHandleByUUID=by_uuid, nvmlDeviceGetPciInfo=lambda _: info
    )


@pytest.mark.parametrize(
    ("properties", "node"),
    [
        ({"pci_domain_id": 0, "pci_bus_id": 0x17, "pci_device_id": 0}, 1),
        ({"uuid": "1b3f"}, 1),  # an older torch
        ({"uuid": "2c40"}, None),
        ({}, None),
        ({"pci_domain_id": 0, "pci_bus_id": 0x99, "pci_device_id": 0}, None),
    ],
)
def test_numa_node_of_a_gpu(
    properties: dict[str, Any], node: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0000:17:00.0").mkdir()
    (tmp_path / "0000:17:00.0" / "numa_node").write_text("1\n")
    monkeypatch.setattr(module, "_PCI_DEVICES", tmp_path)
    driver = Driver(nvml(SimpleNamespace(domain=0, bus=0x17, device=0)))
    monkeypatch.setattr(module, "opened_driver", lambda: driver)
    assert module._numa_node(SimpleNamespace(**properties)) == node


def test_no_driver_and_a_single_node_are_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0000:17:00.0").mkdir()
    (tmp_path / "0000:17:00.0" / "numa_node").write_text("-1\n")
    monkeypatch.setattr(module, "_PCI_DEVICES", tmp_path)
    monkeypatch.setattr(module, "opened_driver", lambda: None)
    assert module._numa_node(SimpleNamespace(uuid="1b3f")) is None
    assert (
        module._numa_node(SimpleNamespace(pci_domain_id=0, pci_bus_id=0x17, pci_device_id=0))
        is None
    )
