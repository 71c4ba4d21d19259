"""``torchscale list``: what names a config may use."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, get_args

import typer

from torchscale.cli.output import result_console


class Kind(str, Enum):
    """What can be listed."""

    MODELS = "models"
    STRATEGIES = "strategies"
    PRECISIONS = "precisions"
    OPTIMIZERS = "optimizers"
    PRESETS = "presets"
    HARDWARE = "hardware"
    DEVICES = "devices"
    LINKS = "links"


Rows = list[dict[str, str]]


def list_names(
    kind: Annotated[Kind | None, typer.Argument(help="What to list. Default: everything.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List models, strategies, precisions, optimizers, measurement presets, hardware presets, devices with their
    documented peaks, and links.

    [bold]Example[/bold]

    [cyan]torchscale list models[/cyan]
    """
    chosen = [kind] if kind is not None else list(Kind)
    found = {item.value: _rows(item) for item in chosen}
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    for name, rows in found.items():
        _print(name, rows)


def _rows(kind: Kind) -> Rows:
    from torchscale.schema.config import OptimizerName, Precision  # noqa: PLC0415 - `--help` needs none

    if kind is Kind.MODELS:
        return _models()
    if kind is Kind.PRESETS:
        return _presets()
    if kind is Kind.HARDWARE:
        return _hardware()
    if kind is Kind.STRATEGIES:
        return _strategies()
    if kind in (Kind.DEVICES, Kind.LINKS):
        return _devices() if kind is Kind.DEVICES else _links()
    described = {
        Kind.PRECISIONS: (Precision, _PRECISIONS),
        Kind.OPTIMIZERS: (OptimizerName, _OPTIMIZERS),
    }
    names, words = described[kind]
    return [{"name": name, "meaning": words[name]} for name in get_args(names)]


def _devices() -> Rows:
    from torchscale.catalog.devices import DEVICES  # noqa: PLC0415 - `--help` needs none
    from torchscale.units import format_byte_rate, format_flops  # noqa: PLC0415

    return [
        {
            "name": facts.title,
            "memory": format_byte_rate(facts.memory_bytes_per_second),
            "dense peaks": ", ".join(f"{name} {format_flops(rate)}" for name, rate in facts.peak_flops.items()),
            "source": facts.source,
        }
        for facts in DEVICES
    ]


def _links() -> Rows:
    from torchscale.catalog.links import LINKS  # noqa: PLC0415 - `--help` needs none
    from torchscale.units import format_byte_rate  # noqa: PLC0415

    return [
        {"name": link.name, "meaning": link.title, "per direction": format_byte_rate(link.bytes_per_second)}
        for link in LINKS.values()
    ]


_STRATEGIES = {
    "none": "one device, no process group",
    "ddp": "DistributedDataParallel: a copy on every device, gradients averaged; plain on one device",
    "zero1": "DDP with the optimizer's state split over the devices",
    "fsdp": "FSDP2: parameters, gradients and optimizer state split over the devices (HSDP with shard)",
    "tensor": "the matrices of every layer split over the devices (decoder-*, llama-*)",
    "sequence": "tensor, with the rest of every layer split along the sequence (decoder-*)",
    "pipeline": "devices hold consecutive layers and pass micro-batches on (decoder-*)",
    "model": "layers split over devices, the whole batch passing through at once",
    "hybrid": "any product of data, shard, tensor and pipeline degrees",
}
_PRECISIONS = {
    "fp32": "full single precision, TF32 off",
    "tf32": "fp32 with TF32 matrix products (CUDA, compute capability 8.0 and newer)",
    "fp16": "fp16 autocast with a gradient scaler; also written amp",
    "bf16": "bf16 autocast (CUDA: compute capability 8.0 and newer)",
    "fp8": "bf16 with the matrix products of linear layers in fp8 (CUDA: compute capability 8.9 and newer)",
}
_OPTIMIZERS = {"sgd": "SGD with momentum 0.9", "adam": "Adam", "adamw": "AdamW"}


def _models() -> Rows:
    from torchscale.catalog.models import MODELS  # noqa: PLC0415 - `--help` does not need it

    rows = [
        {
            "name": facts.name,
            "meaning": facts.title,
            "parameters": _millions(facts.parameters),
            "forward": _giga(facts.forward_flops),
            "splits": " ".join(sorted(facts.splits)),
            "options": " ".join(f"{key}={value}" for key, value in facts.options.items()),
        }
        for facts in MODELS.values()
    ]
    others = (
        ("torchvision:NAME", "its classifiers, where it is installed"),
        ("timm:NAME", "its classifiers, where it is installed"),
        ("hf:PATH/config.json", "a local Hugging Face configuration"),
        ("my_pkg.my_module:build", "your own model (docs/models.md)"),
    )
    blank = {"parameters": "", "forward": "", "splits": ""}
    return [*rows, *({"name": name, "meaning": meaning, **blank, "options": meaning} for name, meaning in others)]


def _millions(parameters: int | None) -> str:
    return "" if parameters is None else f"{parameters / 1e6:,.1f} M"


def _giga(flops: int | None) -> str:
    return "" if flops is None else f"{flops / 1e9:,.1f} GFLOP" if flops >= 1e8 else f"{flops / 1e6:,.1f} MFLOP"


def _strategies() -> Rows:
    from torchscale.schema.strategy import STRATEGIES  # noqa: PLC0415 - `--help` does not need it

    return [
        {
            "name": name,
            "meaning": _STRATEGIES[name],
            "signals": " ".join(sorted(signal.value for signal in kind.signals)) or "phases alone",
            "options": " ".join(key for key in kind.model_fields if key != "name"),
        }
        for name, kind in STRATEGIES.items()
    ]


def _presets() -> Rows:
    from torchscale.schema.config import PRESETS  # noqa: PLC0415 - `--help` does not need it

    return [
        {
            "name": name,
            "meaning": f"warm-up from {values['warmup_seconds']:g} s, measures {values['min_seconds']:g} to "
            f"{values['max_seconds']:g} s, aims at ±{values['target_half_width']:.0%}",
        }
        for name, values in PRESETS.items()
    ]


def _hardware() -> Rows:
    from torchscale.catalog.presets import HARDWARE_PRESETS  # noqa: PLC0415 - `--help` does not need it

    return [{"name": preset.name, "meaning": preset.title} for preset in HARDWARE_PRESETS.values()]


_MACHINES_ALONE = {"models": ("meaning", "splits"), "strategies": ("signals",)}
"""Columns that a terminal has no room for."""


def _print(title: str, rows: Rows) -> None:
    from rich.markup import escape  # noqa: PLC0415 - `--help` does not need it
    from rich.table import Table  # noqa: PLC0415

    table = Table(
        box=None, pad_edge=False, title=title, title_justify="left", title_style="bold", show_header=len(rows[0]) > 2
    )
    shown = [column for column in rows[0] if column not in _MACHINES_ALONE.get(title, ())]
    for column in shown:
        number = column in ("parameters", "forward")
        table.add_column(
            "" if column in ("name", "meaning") else column,
            justify="right" if number else "left",
            no_wrap=column in ("name", "parameters", "forward"),
            overflow="fold",
            header_style="dim",
        )
    for row in rows:
        table.add_row(*(escape(row[column]) for column in shown))
    console = result_console()
    console.print(table)
    console.print()
