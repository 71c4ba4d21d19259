"""A config to start from: fitted to this machine or to a known kind, or one of the ready-made
experiments."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

from torchscale.catalog.machines import ACCELERATORS, find_machine_named
from torchscale.catalog.presets import HARDWARE_PRESETS, HardwarePreset, fitted_preset
from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import read_yaml
from torchscale.door import Slot
from torchscale.errors import UsageError
from torchscale.launch.machine import detect_gpus, usable_cores
from torchscale.util.files import atomic_write_text
from torchscale.util.words import did_you_mean

_TEMPLATE = """\
# A torchscale experiment for {title}.
# Every key: `torchscale docs configuration`; all with their defaults: `torchscale benchmark --show-config`.
# Any value can be changed on the command line: --batch-size 32,64 --training.precision=bf16
{notes}
experiment_name: {experiment_name}   # results go to results/{experiment_name}

# Each model × batch size × GPU count becomes a cell, launched by torchrun and measured on its own.
# Models by name (`torchscale docs names models`), or your own by import path: my_pkg.my_module:build
models: [{models}]
batch_sizes: [{batch_sizes}]         # samples per device and step
gpu_counts: [{gpu_counts}]           # counts this machine cannot run are skipped with the reason; auto takes 1, 2, 4, …
device: {device}
scaling: weak                        # weak: batch per device fixed; strong: global batch fixed

training:
  precision: {precision}             # fp32 | tf32 | fp16 | bf16; a list measures each
  optimizer: adamw                   # sgd | adam | adamw

parallel:
  strategy: ddp                      # ddp | zero1 | fsdp | tensor | pipeline | …; a list measures each

benchmark:
  preset: {preset}                   # standard, or quick: shorter and less exact
  repeats: 1                         # launches per cell; 3 show how much launches differ; comparisons need them

profiling:
  enabled: false                     # true: profile the cells in whose measurement a bottleneck was found

# Rarely needed: data, model, launch, telemetry, export and further keys of the sections above.
"""


_FOREIGN: Slot[Callable[[Path], Translation]] = Slot("foreign configs")
_BF16 = (8, 0)
"""Compute capability from which GPUs have bf16."""
_EXAMPLES = Path(__file__).parent.parent / "_configs"
"""Directory of the examples. In a checkout a link to ``configs``; in a wheel its files."""


def write_config(path: Path, *, hardware: str | None = None, force: bool = False) -> HardwarePreset:
    """Write a config; returns the preset that it was made from.

    Args:
        path: Where to write it.
        hardware: Name of a preset; by default one fitted to the GPUs of this machine.
        force: Whether an existing file is replaced.

    Raises:
        UsageError: there is no such preset, the file exists, or its directory does not.
        OutputError: it cannot be written.
    """
    preset = _preset(hardware)
    _write(path, config_text(preset), force=force)
    return preset


def list_examples() -> list[tuple[str, str]]:
    """Name and description of every ready-made experiment, by name."""
    return [
        (file.stem, _description(file.read_text(encoding="utf-8")))
        for file in sorted(_EXAMPLES.glob("*.yaml"))
    ]


def write_example(path: Path, name: str, *, force: bool = False) -> None:
    """Write a ready-made experiment.

    Args:
        path: Where to write it.
        name: A name from :func:`list_examples`.
        force: Whether an existing file is replaced.

    Raises:
        UsageError: there is no such experiment, the file exists, or its directory does not.
        OutputError: it cannot be written.
    """
    names = [known for known, _ in list_examples()]
    if name not in names:
        raise UsageError(
            f"--example {name}: no such experiment{did_you_mean(name, names)}",
            hint=f"known: {', '.join(names)}",
        )
    _write(path, (_EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"), force=force)


def write_translation(path: Path, source: Path, *, force: bool = False) -> Translation:
    """Write a config of another tool with the keys of this one. It loads; its own comments are
    lost.

    Args:
        path: Where to write it.
        source: The config to read.
        force: Whether an existing file is replaced.

    Raises:
        UsageError: the file exists, or its directory does not.
        ConfigError: ``source`` cannot be read, or holds no key that is known here.
        OutputError: it cannot be written.
    """
    translation = _FOREIGN["other tools"](source)
    _write(path, translation.to_yaml(source.name), force=force)
    return translation


def _description(text: str) -> str:
    """The comment that a config begins with, in one line."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ") for line in comment)


def _write(path: Path, text: str, *, force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint="choose another name, or replace it with --force")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory", hint="create it first")
    if path.suffix.lower() == ".json":
        text = _as_json(text)
    atomic_write_text(path, text)


def config_text(preset: HardwarePreset) -> str:
    """The config with comments, aligned in columns."""
    precision: str = preset.precisions[0]
    if len(preset.precisions) > 1:
        precision = f"[{', '.join(preset.precisions)}]"
    text = _TEMPLATE.format(
        title=preset.title,
        notes="".join(f"# {line}\n" for line in preset.notes),
        experiment_name=preset.name.replace(" ", "-"),
        models=", ".join(preset.models),
        batch_sizes=", ".join(map(str, preset.batch_sizes)),
        gpu_counts=", ".join(map(str, preset.gpu_counts)),
        device=preset.device,
        precision=precision,
        preset=preset.preset,
    )
    return "\n".join(_aligned(line) for line in text.splitlines()) + "\n"


def _as_json(text: str) -> str:
    """The same config as JSON, which has no comments."""
    return json.dumps(read_yaml(text, "config").data, indent=2) + "\n"


def _aligned(line: str) -> str:
    """Comments behind values start in one column."""
    value, mark, comment = line.partition("  #")
    return f"{value.rstrip():<36} #{comment}" if mark and value.strip() else line


def _preset(hardware: str | None) -> HardwarePreset:
    if hardware is None:
        gpus = detect_gpus()
        return fitted_preset(len(gpus), bool(gpus) and min(gpus) >= _BF16, len(usable_cores()))
    if hardware in HARDWARE_PRESETS:
        return HARDWARE_PRESETS[hardware]
    named = find_machine_named(hardware)
    if named is None or named.accelerator is None:
        near = did_you_mean(hardware, HARDWARE_PRESETS)
        raise UsageError(
            f"--hardware {hardware}: no such machine{near}",
            hint=f"known: {', '.join(HARDWARE_PRESETS)}; or any count of "
            f"{', '.join(ACCELERATORS)}, such as 4xa100",
        )
    capability = tuple(map(int, named.accelerator.capability.split(".")))
    return fitted_preset(named.count, capability >= _BF16, named.count, named.name)
