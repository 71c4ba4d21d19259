"""Options and settings that several commands share, and their way into a config as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import as_typed
from torchscale.cli.parsing import counts, integers, listed, model_entries
from torchscale.config.values import ConfigValue

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Leftover arguments are overrides of config keys: ``--training.precision=bf16``."""

ConfigArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG", help="Config file, YAML or JSON. Default: ./benchmark_config.yaml"
    ),
]
Several = list[str] | None
"""Values of an option that may be given several times, or once with commas."""

ModelOption = Annotated[
    Several,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME,…",
        help="Of `torchscale docs names models`, or pkg.module:function.",
    ),
]
BatchOption = Annotated[
    Several,
    typer.Option(
        "--batch-size",
        "-b",
        metavar="N,…",
        help="Samples per device (all devices: strong scaling).",
    ),
]
PrecisionOption = Annotated[
    Several,
    typer.Option(
        "--precision", metavar="NAME,…", help="fp32, tf32, fp16, bf16, fp8. Default: fp32"
    ),
]
OptimizerOption = Annotated[
    Several, typer.Option("--optimizer", metavar="NAME,…", help="sgd, adam, adamw. Default: adamw")
]
StrategyOption = Annotated[
    Several,
    typer.Option(
        "--strategy", metavar="NAME,…", help="none, ddp, zero1, fsdp, tensor … Default: ddp"
    ),
]
CountOption = Annotated[
    Several,
    typer.Option(
        "--gpus",
        "-n",
        metavar="N,…",
        help="Devices, or ranks on CPU. Default: all.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cuda, cpu, or auto: CUDA if torch can use it."),
]
NodesOption = Annotated[
    int | None,
    typer.Option(
        "--nnodes", metavar="N", help="Nodes of the sweep. Default: as a scheduler says, else 1."
    ),
]
NodeRankOption = Annotated[
    int | None,
    typer.Option(
        "--node-rank", metavar="R", help="Which node this is, from 0; node 0 keeps the results."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="HOST:PORT",
        help="Address of node 0 that the others reach, and a free port.",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="The nodes' shared secret. Default: $TORCHSCALE_TOKEN"
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        "-o",
        metavar="DIR",
        help="Run folder, new or existing. Default: a new one in ./results",
    ),
]
BaselinesOption = Annotated[
    Path, typer.Option("--baselines", metavar="DIR", help="Where baselines are kept.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def known_options(context: typer.Context) -> list[str]:
    """The long options of the running command, for suggestions."""
    return [
        option
        for parameter in context.command.params
        for option in parameter.opts
        if option.startswith("--")
    ]


def workload_values(
    context: typer.Context,
    *,
    model: Iterable[str] | None = None,
    batch_size: Iterable[str] | None = None,
    gpus: Iterable[str] | None = None,
    precision: Iterable[str] | None = None,
    optimizer: Iterable[str] | None = None,
    strategy: Iterable[str] | None = None,
    device: str | None = None,
) -> dict[str, tuple[str, object]]:
    """What the options that describe a workload set in a config, for :func:`config_values`.

    Raises:
        UsageError: a batch size or a count is not a whole number.
    """
    return {
        "--model": ("models", model_entries(as_typed(context, "--model"), model)),
        "--batch-size": ("batch_sizes", integers(as_typed(context, "--batch-size"), batch_size)),
        "--gpus": ("gpu_counts", counts(as_typed(context, "--gpus"), gpus)),
        "--precision": ("training.precision", listed(precision)),
        "--optimizer": ("training.optimizer", listed(optimizer)),
        "--strategy": (
            "parallel.strategy",
            model_entries(as_typed(context, "--strategy"), strategy),
        ),
        "--device": ("device", device),
    }


def config_values(
    context: typer.Context, fixed: Mapping[str, object], options: Mapping[str, tuple[str, object]]
) -> list[ConfigValue]:
    """What a command sets in its config: values of its own, and those of options that were given.

    Args:
        context: Of the running command; errors name an option as it was typed.
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
