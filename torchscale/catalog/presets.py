"""Configs that ``torchscale init`` suggests for common machines: small enough to run in an evening."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HardwarePreset:
    """A starting config for a kind of machine; ``notes`` are written into it as comments."""

    name: str
    title: str
    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    gpu_counts: tuple[int, ...]
    precisions: tuple[str, ...]
    device: str = "auto"
    preset: str = "standard"
    notes: tuple[str, ...] = ()


_TRAINERS = ("resnet50", "bert-large", "gpt2")

_ALL = (
    HardwarePreset("8xh100", "one node of eight H100", _TRAINERS, (32, 64, 128), (1, 2, 4, 8), ("bf16",), "cuda"),
    HardwarePreset("8xh200", "one node of eight H200", _TRAINERS, (32, 64, 128), (1, 2, 4, 8), ("bf16",), "cuda"),
    HardwarePreset("1xh200", "a single H200", _TRAINERS, (32, 64, 128), (1,), ("tf32", "bf16"), "cuda"),
    HardwarePreset("8xa100", "one node of eight A100", _TRAINERS, (16, 32, 64), (1, 2, 4, 8), ("bf16",), "cuda"),
    HardwarePreset(
        "4xv100-nvlink",
        "four V100 joined by NVLink",
        ("resnet50", "bert-base"),
        (16, 32, 64),
        (1, 2, 4),
        ("fp32", "fp16"),
        "cuda",
        notes=("V100 has no bf16 and no tf32; fp16 runs with a gradient scaler.",),
    ),
    HardwarePreset(
        "apple-mps",
        "an Apple computer",
        ("resnet18", "gpt2"),
        (4, 8),
        (1,),
        ("fp32",),
        "mps",
        "quick",
        notes=("The GPU goes through PyTorch's mps, which was never run with torchscale; device: cpu was.",),
    ),
    HardwarePreset(
        "cpu",
        "any machine without a GPU",
        ("tiny-resnet", "tiny-bert", "tiny-gpt2"),
        (8, 32),
        (1, 2),
        ("fp32",),
        "cpu",
        "quick",
    ),
)

HARDWARE_PRESETS = {preset.name: preset for preset in _ALL}
"""Every preset by name."""


def fitted_preset(gpus: int, has_bf16: bool) -> HardwarePreset:
    """A preset for ``gpus`` GPUs of this machine, or the one for CPUs where there are none."""
    if gpus == 0:
        return HARDWARE_PRESETS["cpu"]
    counts = [1 << exponent for exponent in range(gpus.bit_length()) if 1 << exponent <= gpus]
    counts += [gpus] if counts[-1] != gpus else []
    precision = ("bf16",) if has_bf16 else ("fp16",)
    title = f"this machine: {gpus} GPU{'s' * (gpus > 1)}"
    return HardwarePreset("this machine", title, _TRAINERS, (16, 32, 64), tuple(counts), precision, "cuda")
