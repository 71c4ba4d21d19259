"""Options and settings that several commands share, and their way into a config as values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from torchscale.config.values import ConfigValue

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Leftover arguments are overrides of config keys: ``--training.precision=bf16``."""

ConfigArgument = Annotated[
    str | None, typer.Argument(metavar="CONFIG", help="Config file, YAML or JSON. Default: ./benchmark_config.yaml")
]
CountOption = Annotated[
    int | None, typer.Option("--gpus", "-n", min=1, help="Devices, or ranks on CPU. Default: all.", show_default=False)
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="cuda, cpu, or auto: CUDA where torch sees it.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output-dir", "-o", help="Run folder, new or to be joined. Default: results/<command>-<time>"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def known_options(context: typer.Context) -> list[str]:
    """The long options of the running command, for suggestions."""
    return [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]


def config_values(fixed: Mapping[str, object], options: Mapping[str, tuple[str, object]]) -> list[ConfigValue]:
    """What a command sets in its config: values of its own, and those of options that were given.

    Args:
        fixed: Config key → value.
        options: Option as typed (``--min-bytes``) → config key and value; ``None`` and empty lists were not given.
    """
    given = [
        ConfigValue(key, value, option) for option, (key, value) in options.items() if value is not None and value != []
    ]
    return [*(ConfigValue(key, value) for key, value in fixed.items()), *given]
