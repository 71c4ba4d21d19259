from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories import cpu_task
from torchscale.analysis.machine.hardware import hardware_figures
from torchscale.config.choices import MatmulType
from torchscale.schema.cells.hardware import (
    CopySample,
    HardwareCell,
    HardwareRank,
    HardwareResult,
    MatmulSample,
)
from torchscale.worker.machine import hardware as module
from torchscale.worker.machine.hardware import measure_disk, measure_hardware
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles


def measured(directory: Path, indices: tuple[int, ...] = (), **changes: Any) -> HardwareRank:
    settings: dict[str, Any] = {
        "matmul_sizes": (64, 128),
        "matmul_dtypes": ("fp32", "bf16"),
        "seconds": 0.02,
        "copy_bytes": 1 << 20,
        "disk_bytes": 1 << 20,
        "world_size": 1,
        "device": "cpu",
    }
    cell = HardwareCell(**{**settings, **changes})
    task = cpu_task(cell, device_indices=indices)
    return measure_hardware(
        task, cell, Ranks(0, 0, 1, torch.device("cpu"), None), RankFiles(directory, 0)
    )


def test_products_of_every_shape_and_copies(tmp_path: Path) -> None:
    found = measured(tmp_path, disk_path=str(tmp_path))
    shapes = [(64, 64, 64), (128, 128, 128), (128, 32, 32)]
    assert [(one.dtype, (one.m, one.n, one.k)) for one in found.matmuls] == [
        (dtype, shape) for dtype in ("fp32", "bf16") for shape in shapes
    ]
    assert all(len(one.warm_seconds) >= 5 and len(one.cold_seconds) == 5 for one in found.matmuls)
    assert all(
        seconds > 0 for one in found.matmuls for seconds in (*one.warm_seconds, *one.cold_seconds)
    )
    assert [copy.kind for copy in found.copies] == ["device"]
    assert found.disk is not None
    assert found.host_load is not None
    assert found.host_load.wall_seconds >= 6 * 0.02, "over all products and copies"
    assert found.disk.payload_bytes == 1 << 20
    assert list(tmp_path.glob(".torchscale-disk*")) == []
    # Precision is set back to what it was.
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_dtype_that_the_device_cannot_multiply_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("fp8 needs another device\nand more words")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    found = measured(tmp_path, matmul_dtypes=("fp32", "fp8"), matmul_sizes=(24,))
    assert {one.dtype for one in found.matmuls} == {"fp32"}
    assert found.unsupported == {"fp8": "fp8 needs another device"}


@pytest.mark.parametrize(
    ("dtype", "capability", "needed"),
    [
        ("tf32", (7, 0), "8.0"),
        ("bf16", (7, 5), "8.0"),
        ("fp8", (8, 0), "8.9"),
        ("bf16", (8, 0), ""),
        ("fp16", (7, 0), ""),
    ],
)
def test_what_only_newer_tensor_cores_have_is_not_measured_elsewhere(
    dtype: MatmulType, capability: tuple[int, int], needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    reason = module._lacking(dtype, torch.device("cuda", 0))
    assert (reason is not None) == bool(needed)
    assert needed in (reason or "")
    assert module._lacking(dtype, torch.device("cpu")) is None


def test_a_gpu_that_takes_no_second_process_costs_no_other_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def peer_copy(self: object, index: int) -> list[CopySample]:
        if index == 1:
            raise RuntimeError(
                "CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA kernel errors"
            )
        return [CopySample(kind="device_to_device", payload_bytes=8, seconds=(1e-6,), peer=index)]

    monkeypatch.setattr(module._Bench, "peer_copy", peer_copy)
    found = measured(tmp_path, indices=(0, 1, 2))
    assert [copy.peer for copy in found.copies if copy.kind == "device_to_device"] == [0, 2]
    assert found.unsupported == {
        "copy to GPU 1": "CUDA error: all CUDA-capable devices are busy or unavailable"
    }


def test_a_disk_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        measure_disk(tmp_path / "missing", 1000)
    assert list(tmp_path.iterdir()) == []


def test_rates_by_hand(tmp_path: Path) -> None:
    def rank(number: int, scale: float) -> HardwareRank:
        products = (
            MatmulSample(
                dtype="bf16",
                m=100,
                n=100,
                k=100,
                warm_seconds=(2e-6 * scale, 1e-6 * scale, 9e-6 * scale),
            ),
            MatmulSample(
                dtype="bf16",
                m=200,
                n=200,
                k=200,
                warm_seconds=(4e-6 * scale,),
                cold_seconds=(8e-6 * scale,),
            ),
        )
        copies = (
            CopySample(kind="device", payload_bytes=1000, seconds=(1e-6 * scale,)),
            CopySample(kind="host_to_device", payload_bytes=1000, seconds=(1e-6,), pinned=True),
        )
        base = measured(tmp_path, matmul_sizes=(8,), matmul_dtypes=("fp32",))
        return base.model_copy(update={"rank": number, "matmuls": products, "copies": copies})

    figures = hardware_figures([HardwareResult(ranks=(rank(0, 1.0), rank(1, 2.0)))])
    (rates,) = figures.matmuls
    # 16 MFLOP in 4 and 8 µs: 4 and 2 TFLOP/s; the smaller shape 2 MFLOP in a median of 2 and 4 µs.
    assert rates.peak == pytest.approx(3e12)
    assert rates.peak_shape == (200, 200, 200)
    assert rates.slowest_device == pytest.approx(-1 / 3)
    assert rates.cold == pytest.approx(1.5e12)
    assert rates.typical == pytest.approx((3e12 + 0.75e12) / 2)
    assert figures.peak("bf16") == rates.peak
    assert figures.peak("fp32") is None
    assert figures.memory_bytes_per_second == pytest.approx((2e9 + 1e9) / 2)  # read and written
    assert figures.copies[1].kind == "host_to_device"
    assert figures.copies[1].bytes_per_second == pytest.approx(1e9)
