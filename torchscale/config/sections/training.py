"""The sections of a config that say how models are trained, and spread over devices."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from torchscale.config.base import Axis, AxisSchema, ConfigSection, PositiveInt, as_axis
from torchscale.config.choices import Checkpointing, OptimizerChoice, PrecisionChoice
from torchscale.config.strategy import Strategy, StrategyAxis, strategy_label


def _as_precision(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """``amp`` is the name many users know for fp16 autocast with a gradient scaler."""
    if isinstance(value, list | tuple):
        return [_as_precision(item) for item in value]
    if value == "amp":
        return "fp16"
    return value


class TrainingSettings(ConfigSection):
    """Optimizer step: precision, optimizer, accumulation, checkpointing, seeds."""

    precision: Annotated[
        tuple[PrecisionChoice, ...],
        BeforeValidator(as_axis),
        BeforeValidator(_as_precision),
        AxisSchema({"const": "amp"}),
    ] = Field(
        ("fp32",),
        description="fp32, tf32 (CUDA only), fp16 (also written amp), bf16, fp8, or mxfp8 and nvfp4 "
        "(Blackwell, with torchao); an axis.",
    )
    optimizer: Axis[OptimizerChoice] = Field(("adamw",), description="sgd, adam or adamw; an axis.")
    fused: Axis[bool] = Field(
        (False,), description="Use the optimizer's fused implementation; an axis."
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        1e-4, description="Learning rate, constant over the run."
    )
    gradient_accumulation: Axis[PositiveInt] = Field(
        (1,),
        description="Split a step's batch into this many micro-batches; gradients are "
        "synchronized after the last; an axis.",
    )
    activation_checkpointing: Axis[Checkpointing] = Field(
        ("none",),
        description="full recomputes every block in the backward pass; selective recomputes "
        "everything except matrix products and attention; an axis.",
    )
    gradient_clipping: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Clip gradients to this total norm; default: no clipping."
    )
    deterministic: bool = Field(
        False, description="Use only deterministic algorithms; operations without one fail."
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        0, description="Random seed of weights (equal on all ranks) and data (seed + rank)."
    )
    cudnn_benchmark: bool = Field(
        True, description="Let cuDNN benchmark its convolution algorithms during warm-up."
    )
    epochs: PositiveInt | None = Field(
        None, description="Measure this many epochs of the data instead of the adaptive rule."
    )
    warmup_epochs: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Warm up for this many epochs of the data instead; 0: for the three steps "
        "that always run.",
    )


class ParallelSettings(ConfigSection):
    """Parallelism strategy: how a model is distributed over devices."""

    strategy: StrategyAxis = Field(
        ("ddp",),
        validate_default=True,
        description="none, ddp, zero1, fsdp, tensor, sequence, pipeline, model, ep, cp or hybrid, "
        "or mappings {name: …, option: …}; an axis.",
    )

    @field_validator("strategy")
    @classmethod
    def _none_twice(cls, strategies: tuple[Strategy, ...]) -> tuple[Strategy, ...]:
        """Options at their defaults do not make a different strategy: both entries would be the
        same cell."""
        for index, strategy in enumerate(strategies):
            if strategy in strategies[:index]:
                raise ValueError(
                    f"{strategy_label(strategy)} is listed twice; list each value of an axis once"
                )
        return strategies
