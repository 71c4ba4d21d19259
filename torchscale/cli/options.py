"""Options and settings that several commands share, and their way into a config as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import as_typed
from torchscale.cli.parameters import LOCAL, READS, argument, option
from torchscale.config.engines import EngineChoice
from torchscale.config.values import ConfigValue

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Leftover arguments are overrides of config keys: ``--training.precision=bf16``."""

ConfigArgument = Annotated[
    str | None,
    argument("CONFIG", "Config file, YAML or JSON. Default: ./benchmark_config.yaml", **LOCAL),
]
Several = list[str] | None
"""Values of an option that may be given several times, or once with commas."""
OutputOption = Annotated[
    Path | None,
    option("--output-dir -o DIR", "Run folder, new or existing. Default: a new one in ./results"),
]
BaselinesOption = Annotated[Path, option("--baselines DIR", "Where baselines are kept.", **READS)]
JsonOption = Annotated[bool, option("--json", "Print the results as JSON.")]


@dataclass(frozen=True)
class NodeArguments:
    """Which node of which cluster this is."""

    nodes: Annotated[
        int | None,
        option("--nnodes N", "How many nodes. Default: what the scheduler says, else 1."),
    ] = None
    node_rank: Annotated[
        int | None, option("--node-rank R", "Which node this is, from 0; node 0 keeps the results.")
    ] = None
    master: Annotated[
        str | None,
        option("--master HOST:PORT", "Address of node 0 that the others reach, and a free port."),
    ] = None
    token_file: Annotated[
        Path | None,
        option("--token-file FILE", "The nodes' shared secret. Default: $TORCHSCALE_TOKEN"),
    ] = None
    engine: Annotated[
        EngineChoice | None,
        option(
            "--engine NAME",
            "What starts launches on the nodes: slurm, ray or channel (one command a node). "
            "Default: slurm in a job of several nodes, ray where RAY_ADDRESS is set, else channel.",
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        option(
            "--ray-address HOST:PORT",
            "The Ray cluster. Default: $RAY_ADDRESS, else that of this machine.",
        ),
    ] = None


def known_options(context: typer.Context) -> list[str]:
    """The long options of the running command, for suggestions."""
    return [
        option
        for parameter in context.command.params
        for option in parameter.opts
        if option.startswith("--")
    ]


def config_arguments(context: typer.Context, config: str | None) -> list[str]:
    """The config, where one is named, and the overrides of its keys, as they were typed."""
    if config is None:
        return list(context.args)
    return [config, *context.args]


def config_values(
    context: typer.Context, fixed: Mapping[str, object], options: Mapping[str, tuple[str, object]]
) -> list[ConfigValue]:
    """What a command sets in its config: values of its own, and those of options that were given.

    Args:
        context: Context of the running command; errors name an option as it was typed.
        fixed: Config key → value.
        options: Option (``--min-bytes``) → config key and value; ``None`` and empty lists were not
            given.
    """
    given = [
        ConfigValue(key, value, as_typed(context, option))
        for option, (key, value) in options.items()
        if value is not None and value != []
    ]
    return [*(ConfigValue(key, value) for key, value in fixed.items()), *given]
