from __future__ import annotations

import pytest

from torchscale.catalog.devices import find_device
from torchscale.catalog.machines import ACCELERATORS, find_machine_named
from torchscale.catalog.presets import HARDWARE_PRESETS, fitted_preset


@pytest.mark.parametrize(
    ("name", "count", "accelerator"),
    [
        ("8xh100", 8, "h100"),
        ("4xv100-nvlink", 4, "v100"),
        (" 2xA100 ", 2, "a100"),
        ("cpu", 2, None),
    ],
)
def test_a_machine_is_a_count_and_a_gpu(name: str, count: int, accelerator: str | None) -> None:
    found = find_machine_named(name)
    assert found is not None
    assert (found.count, found.accelerator) == (
        count,
        None if accelerator is None else ACCELERATORS[accelerator],
    )


@pytest.mark.parametrize("name", ["", "h100", "0xh100", "8xh1000", "999xh100", "apple-mps"])
def test_other_names_are_unknown(name: str) -> None:
    assert find_machine_named(name) is None


@pytest.mark.parametrize("word", ACCELERATORS)
def test_every_gpu_has_documented_peak_rates(word: str) -> None:
    assert find_device(ACCELERATORS[word].driver_name) is not None


def test_every_cuda_preset_is_a_machine() -> None:
    for preset in HARDWARE_PRESETS.values():
        if preset.device == "cuda":
            found = find_machine_named(preset.name)
            assert found is not None
            assert found.count == max(preset.gpu_counts)


def test_a_preset_fits_the_machine() -> None:
    assert fitted_preset(6, has_bf16=True, cores=64).gpu_counts == (1, 2, 4, 6)
    cpu = fitted_preset(0, has_bf16=False, cores=2)
    assert (cpu.gpu_counts, cpu.title) == ((1, 2), "this machine: 2 CPU cores, no GPU")
    assert fitted_preset(0, has_bf16=False, cores=64).gpu_counts == (1, 2, 4, 8)
