"""``torchscale init``: a commented config to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.output import note
from torchscale.errors import UsageError

if TYPE_CHECKING:
    from torchscale.catalog.presets import HardwarePreset

DEFAULT_CONFIG = Path("benchmark_config.yaml")

_TEMPLATE = """\
# A torchscale experiment for {title}.
# Every key is explained in docs/configuration.md; `torchscale config show` prints them all with their defaults.
# Any value can be changed on the command line: --batch_sizes=[32,64] --training.precision=bf16
{notes}
experiment_name: {experiment_name}   # results go to results/{experiment_name}

# Each model × batch size × GPU count becomes a cell: one torchrun, measured on its own.
# Models by name (`torchscale list models`), or your own by import path: my_pkg.my_module:build
models: [{models}]
batch_sizes: [{batch_sizes}]         # samples per device and step
gpu_counts: [{gpu_counts}]           # counts this machine cannot run are skipped, and said; auto takes 1, 2, 4, …
device: {device}
scaling: weak                        # weak: batch per device fixed; strong: global batch fixed

training:
  precision: {precision}             # fp32 | tf32 | fp16 | bf16; a list measures each
  optimizer: adamw                   # sgd | adam | adamw

benchmark:
  preset: {preset}                   # standard, or quick: shorter and less exact
  repeats: 1                         # launches per cell; 3 tell how much launches differ, and comparisons need them

profiling:
  enabled: false                     # true: profile the cells in whose measurement a bottleneck was found

launch:
  timeout_seconds: 1800              # a launch that takes longer is ended and named: timeout
"""


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = DEFAULT_CONFIG,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", help="For a known machine (torchscale list hardware). Default: fitted to this one."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented config to start from, fitted to this machine or to a known kind.

    [bold]Examples[/bold]

    [cyan]torchscale init[/cyan]

    [cyan]torchscale init h100.yaml --hardware 8xh100[/cyan]
    """
    from torchscale.store import atomic_write_text  # noqa: PLC0415 - `--help` does not need it

    preset = _preset(hardware)
    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint="choose another name, or replace it with --force")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory", hint="create it first")
    atomic_write_text(path, config_text(preset))
    note(f"Wrote {path} for {preset.title}. Next: torchscale benchmark {path} --dry-run")


def config_text(preset: HardwarePreset) -> str:
    """The file's content."""
    text = _TEMPLATE.format(
        title=preset.title,
        notes="".join(f"# {line}\n" for line in preset.notes),
        experiment_name=preset.name.replace(" ", "-"),
        models=", ".join(preset.models),
        batch_sizes=", ".join(map(str, preset.batch_sizes)),
        gpu_counts=", ".join(map(str, preset.gpu_counts)),
        device=preset.device,
        precision=preset.precisions[0] if len(preset.precisions) == 1 else f"[{', '.join(preset.precisions)}]",
        preset=preset.preset,
    )
    return "\n".join(_aligned(line) for line in text.splitlines()) + "\n"


def _aligned(line: str) -> str:
    """Comments behind values start in one column."""
    value, mark, comment = line.partition("  #")
    return f"{value.rstrip():<36} #{comment}" if mark and value.strip() else line


def _preset(hardware: str | None) -> HardwarePreset:
    from torchscale.catalog.presets import HARDWARE_PRESETS, fitted_preset  # noqa: PLC0415 - `--help` does not need it
    from torchscale.launch.machine import detect_gpus  # noqa: PLC0415
    from torchscale.schema.explain import did_you_mean  # noqa: PLC0415

    if hardware is None:
        gpus = detect_gpus()
        return fitted_preset(len(gpus), has_bf16=bool(gpus) and min(gpus) >= (8, 0))
    if hardware not in HARDWARE_PRESETS:
        near = did_you_mean(hardware, HARDWARE_PRESETS)
        raise UsageError(f"--hardware {hardware}: no such preset{near}", hint=f"known: {', '.join(HARDWARE_PRESETS)}")
    return HARDWARE_PRESETS[hardware]
