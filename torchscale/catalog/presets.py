"""Configs that ``torchscale init`` suggests for common machines: small enough to run in an
evening."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
    HardwarePreset(
        "8xh100",
        "one node of eight H100",
        _TRAINERS,
        (32, 64, 128),
        (1, 2, 4, 8),
        ("bf16",),
        "cuda",
    ),
    HardwarePreset(
        "8xh200",
        "one node of eight H200",
        _TRAINERS,
        (32, 64, 128),
        (1, 2, 4, 8),
        ("bf16",),
        "cuda",
    ),
    HardwarePreset(
        "1xh200", "a single H200", _TRAINERS, (32, 64, 128), (1,), ("tf32", "bf16"), "cuda"
    ),
    HardwarePreset(
        "8xa100", "one node of eight A100", _TRAINERS, (16, 32, 64), (1, 2, 4, 8), ("bf16",), "cuda"
    ),
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
        notes=(
            "The GPU goes through PyTorch's mps, which was never run with torchscale; device: cpu "
            "was.",
        ),
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

_MOST_CPU_RANKS = 8
"""More counts of CPU ranks take an evening and say little more."""

HARDWARE_PRESETS = {preset.name: preset for preset in _ALL}
"""Every preset by name."""


def fitted_preset(
    gpus: int, has_bf16: bool, cores: int, name: str = "this machine"
) -> HardwarePreset:
    """A preset for a machine with ``gpus`` GPUs, or with ``cores`` CPU cores and none."""
    if gpus == 0:
        title = f"{name}: {cores} CPU core{'s' * (cores > 1)}, no GPU"
        return replace(
            HARDWARE_PRESETS["cpu"],
            name=name,
            title=title,
            gpu_counts=_powers(min(cores, _MOST_CPU_RANKS)),
        )
    title = f"{name}: {gpus} GPU{'s' * (gpus > 1)}"
    precision = ("bf16",) if has_bf16 else ("fp16",)
    return HardwarePreset(name, title, _TRAINERS, (16, 32, 64), _powers(gpus), precision, "cuda")


def _powers(count: int) -> tuple[int, ...]:
    """1, 2, 4, … and ``count``."""
    powers = [1 << exponent for exponent in range(count.bit_length())]
    return (*powers, *([count] if powers[-1] != count else []))
