"""The options that describe a workload, for all commands that take one, and their way into a
config."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, get_type_hints

import typer

from torchscale.cli.command import as_typed
from torchscale.cli.options import Several
from torchscale.cli.parsing import counts, integers, listed, model_entries

ModelOption = Annotated[
    Several,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME,…",
        help="Name in `torchscale docs names models`, or pkg.module:function.",
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
        "--precision",
        metavar="NAME,…",
        help="fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4. Default: fp32",
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


@dataclass(frozen=True)
class Workload:
    """What the options say, in the order in which help lists them; ``None`` was not given."""

    models: ModelOption = None
    batch_sizes: BatchOption = None
    gpus: CountOption = None
    precisions: PrecisionOption = None
    strategies: StrategyOption = None
    optimizers: OptimizerOption = None
    device: DeviceOption = None

    def values(self, context: typer.Context) -> dict[str, tuple[str, object]]:
        """What they set in a config, for :func:`torchscale.cli.options.config_values`.

        Raises:
            UsageError: a batch size or a count is not a whole number.
        """

        def typed(option: str) -> str:
            return as_typed(context, option)

        return {
            "--model": ("models", model_entries(typed("--model"), self.models)),
            "--batch-size": ("batch_sizes", integers(typed("--batch-size"), self.batch_sizes)),
            "--gpus": ("gpu_counts", counts(typed("--gpus"), self.gpus)),
            "--precision": ("training.precision", listed(self.precisions)),
            "--optimizer": ("training.optimizer", listed(self.optimizers)),
            "--strategy": (
                "parallel.strategy",
                model_entries(typed("--strategy"), self.strategies),
            ),
            "--device": ("device", self.device),
        }


def takes_workload(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with one option for each field of :class:`Workload` where its signature has
    ``workload``; it is given them as one object."""
    options = get_type_hints(Workload, include_extras=True)

    @functools.wraps(command)
    def with_options(**given: object) -> None:
        workload = Workload(**{name: given.pop(name) for name in options})  # type: ignore[arg-type]
        command(workload=workload, **given)

    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "workload":
            parameters.append(parameter)
            continue
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in options.items()
        ]
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {it.name: it.annotation for it in parameters}
    return with_options
