"""The options that describe a workload, for all commands that take one, and their way into a
config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from torchscale.cli.command import as_typed
from torchscale.cli.options import Several
from torchscale.cli.parameters import option
from torchscale.cli.parsing import counts, integers, listed, model_entries

ModelOption = Annotated[
    Several,
    option("--model -m NAME,…", "Name in `torchscale docs names models`, or pkg.module:function."),
]
BatchOption = Annotated[
    Several, option("--batch-size -b N,…", "Samples per device (all devices: strong scaling).")
]
PrecisionOption = Annotated[
    Several,
    option("--precision NAME,…", "fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4. Default: fp32"),
]
OptimizerOption = Annotated[
    Several, option("--optimizer NAME,…", "sgd, adam, adamw. Default: adamw")
]
StrategyOption = Annotated[
    Several, option("--strategy NAME,…", "none, ddp, zero1, fsdp, tensor … Default: ddp")
]
CountOption = Annotated[
    Several, option("--gpus -n N,…", "Devices, or ranks on CPU. Default: all.", show_default=False)
]
DeviceOption = Annotated[
    str | None, option("--device NAME", "cuda, cpu, or auto: CUDA if torch can use it.")
]


@dataclass(frozen=True)
class WorkloadOptions:
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
