"""The names that a config may use: models, strategies, precisions, optimizers, presets, devices,
links."""

from __future__ import annotations

from typing import get_args

from torchscale.catalog.devices import DEVICES
from torchscale.catalog.links import LINKS
from torchscale.catalog.models import MODELS
from torchscale.catalog.presets import HARDWARE_PRESETS
from torchscale.config.choices import CatalogKind, OptimizerChoice, PrecisionChoice
from torchscale.config.sections.benchmark import PRESETS
from torchscale.config.strategy import STRATEGIES
from torchscale.util.units import format_percent

Value = str | int | float | dict[str, float] | None
"""``None`` where it is not known before a model is built."""
Rows = list[dict[str, Value]]


def catalog_rows(kind: CatalogKind) -> Rows:
    """One row per name; every row has the same columns, ``name`` first.

    Numbers have no prefixes: ``parameters`` is a count, ``forward`` FLOPs of one sample, ``memory
    bandwidth`` and ``per direction`` bytes per second, ``dense peaks`` FLOP/s by dtype.
    """
    if kind is CatalogKind.MODELS:
        return _models()
    if kind is CatalogKind.PRESETS:
        return _presets()
    if kind is CatalogKind.HARDWARE:
        return _hardware()
    if kind is CatalogKind.STRATEGIES:
        return _strategies()
    if kind in (CatalogKind.DEVICES, CatalogKind.LINKS):
        if kind is CatalogKind.DEVICES:
            return _devices()
        return _links()
    descriptions_of = {
        CatalogKind.PRECISIONS: (PrecisionChoice, _PRECISIONS),
        CatalogKind.OPTIMIZERS: (OptimizerChoice, _OPTIMIZERS),
    }
    names, meanings = descriptions_of[kind]
    return [{"name": name, "meaning": meanings[name]} for name in get_args(names)]


def _devices() -> Rows:
    return [
        {
            "name": facts.title,
            "memory bandwidth": facts.memory_bytes_per_second,
            "dense peaks": dict(facts.peak_flops),
            "source": facts.source,
        }
        for facts in DEVICES
    ]


def _links() -> Rows:
    return [
        {"name": link.name, "meaning": link.title, "per direction": link.bytes_per_second}
        for link in LINKS.values()
    ]


_STRATEGIES = {
    "none": "one device, no process group",
    "ddp": "DistributedDataParallel: a copy on every device, gradients averaged; plain on one "
    "device",
    "zero1": "DDP with the optimizer's state split over the devices",
    "fsdp": "FSDP2: parameters, gradients and optimizer state split over the devices (HSDP with "
    "shard)",
    "tensor": "the matrices of every layer split over the devices (decoder-*, llama-*, models with "
    "experts)",
    "sequence": "tensor, with the rest of every layer split along the sequence (decoder-*)",
    "pipeline": "devices hold consecutive layers and pass micro-batches on (decoder-*, models "
    "with experts)",
    "model": "layers split over devices, the whole batch passing through at once",
    "ep": "the experts of every layer spread over the devices, which send each other the tokens "
    "(models with experts)",
    "cp": "the tokens of every sample split over the devices, which give each other the keys and "
    "values of attention (decoders)",
    "hybrid": "any product of data, shard, tensor, pipeline, ep and cp degrees",
}
_PRECISIONS = {
    "fp32": "full single precision, TF32 off",
    "tf32": "fp32 with TF32 matrix products (CUDA, compute capability 8.0 and newer)",
    "fp16": "fp16 autocast with a gradient scaler; also written amp",
    "bf16": "bf16 autocast (CUDA: compute capability 8.0 and newer)",
    "fp8": "bf16 with the matrix products of linear layers in fp8 (CUDA: compute capability 8.9 "
    "and newer)",
    "mxfp8": "the same in fp8 with a scale for each 32 elements (compute capability 10.0, torchao)",
    "nvfp4": "the same in fp4 with a scale for each 16 elements (compute capability 10.0, torchao)",
}
_OPTIMIZERS = {"sgd": "SGD with momentum 0.9", "adam": "Adam", "adamw": "AdamW"}


def _models() -> Rows:
    rows: Rows = [
        {
            "name": facts.name,
            "meaning": facts.title,
            "parameters": facts.parameters,
            "forward": facts.forward_flops,
            "splits": " ".join(sorted(facts.splits)),
            "options": " ".join(f"{key}={value}" for key, value in facts.options.items()),
        }
        for facts in MODELS.values()
    ]
    others = (
        ("torchvision:NAME", "its classifiers, where it is installed"),
        ("timm:NAME", "its classifiers, where it is installed"),
        ("hf:PATH/config.json", "a local Hugging Face configuration"),
        ("my_pkg.my_module:build", "your own model (torchscale docs models)"),
    )
    blank: dict[str, Value] = {"parameters": None, "forward": None, "splits": ""}
    return [
        *rows,
        *(
            {"name": name, "meaning": meaning, **blank, "options": meaning}
            for name, meaning in others
        ),
    ]


def _strategies() -> Rows:
    return [
        {
            "name": name,
            "meaning": _STRATEGIES[name],
            "signals": " ".join(sorted(signal.value for signal in strategy.signals))
            or "phases alone",
            "options": " ".join(key for key in strategy.model_fields if key != "name"),
        }
        for name, strategy in STRATEGIES.items()
    ]


def _presets() -> Rows:
    return [
        {
            "name": name,
            "meaning": f"warm-up from {values['warmup_seconds']:g} s, measures "
            f"{values['min_seconds']:g} to {values['max_seconds']:g} s, until the interval is "
            f"within {format_percent(values['target_half_width'], 0)} of the mean",
        }
        for name, values in PRESETS.items()
    ]


def _hardware() -> Rows:
    return [{"name": preset.name, "meaning": preset.title} for preset in HARDWARE_PRESETS.values()]
