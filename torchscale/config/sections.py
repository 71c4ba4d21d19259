"""The sections of a config that say how models are trained, measured, launched and profiled, with
every default."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from torchscale.catalog.model_facts import OPTION_ALIASES, OptionValue
from torchscale.catalog.models import find_model, is_import_path
from torchscale.config.base import (
    Axis,
    AxisSchema,
    ConfigSection,
    PositiveInt,
    PositiveSeconds,
    as_axis,
    as_tuple,
)
from torchscale.config.choices import (
    MAX_NODES,
    Checkpointing,
    CompileMode,
    DataChoice,
    Isolation,
    Malloc,
    OptimizerChoice,
    Packing,
    Placement,
    PrecisionChoice,
    Preset,
)
from torchscale.config.strategy import Strategy, StrategyAxis, strategy_label
from torchscale.util.length_file import LEAST, MAX_LENGTH

MAX_SIGMA = 4.0
"""Lengths a factor of 55 apart within a standard deviation: beyond any corpus of text."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _as_precision(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """``amp`` is the name many users know for fp16 autocast with a gradient scaler."""
    if isinstance(value, list | tuple):
        return [_as_precision(item) for item in value]
    if value == "amp":
        return "fp16"
    return value


class ModelChoice(ConfigSection):
    """An entry of ``models``: a name with options; plain text where it has none."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        description="A catalogued model (`torchscale docs names models`), torchvision:NAME, "
        "timm:NAME, hf:PATH/config.json, or `package.module:function`."
    )

    __pydantic_extra__: dict[str, OptionValue]

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if find_model(name) is None and not is_import_path(name):
            raise ValueError("unknown model")
        return name

    @model_validator(mode="before")
    @classmethod
    def _usual_names(cls, data: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        if isinstance(data, dict):
            return with_usual_names(data)
        return data

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options given beside ``name``."""
        return dict(self.__pydantic_extra__ or {})


def with_usual_names(options: dict[str, Any]) -> dict[str, Any]:
    """Options under the names of the catalog: ``seq_len`` is ``sequence_length``. Given both ways,
    both stay, and the check for unknown options finds the other one."""
    usual = {}
    for key, value in options.items():
        name = OPTION_ALIASES.get(key, key)
        if name in options:
            name = key
        usual[name] = value
    return usual


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


class ModelSettings(ConfigSection):
    """Options that apply to every model."""

    channels_last: Axis[bool] = Field(
        (False,), description="NHWC memory format for image models; an axis."
    )
    compile: Axis[bool | CompileMode] = Field(
        (False,),
        description="torch.compile the model: true, or a mode (reduce-overhead, max-autotune, …); "
        "compile time is reported separately; an axis.",
    )
    options: dict[str, OptionValue] = Field(
        default_factory=dict,
        description="Options for every model that takes them: image_size, num_classes, "
        "sequence_length.",
    )

    @field_validator("compile")
    @classmethod
    def _none_twice(cls, modes: tuple[bool | CompileMode, ...]) -> tuple[bool | CompileMode, ...]:
        if True in modes and "default" in modes:
            raise ValueError("true and 'default' are the same mode; keep one")
        return modes

    @field_validator("options", mode="before")
    @classmethod
    def _usual_names(cls, options: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        if isinstance(options, dict):
            return with_usual_names(options)
        return options


class Lengths(ConfigSection):
    """Lengths of documents in tokens: lognormal, or those that a file lists."""

    median: Annotated[int, Field(ge=LEAST, le=MAX_LENGTH)] | None = Field(
        None, description="Median of a lognormal distribution."
    )
    sigma: Annotated[float, Field(ge=0, le=MAX_SIGMA)] | None = Field(
        None, description="Its standard deviation, of the natural logarithm of the length."
    )
    file: str | None = Field(
        None,
        description="File with a length on each line, or a length and how often it occurs.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Lengths:
        has_law = self.median is not None and self.sigma is not None
        in_part = (self.median is None) != (self.sigma is None)
        if in_part or has_law == (self.file is not None):
            raise ValueError("expected median and sigma of a lognormal distribution, or a file")
        return self


class DataSettings(ConfigSection):
    """Data source, loader processes and data files."""

    source: Axis[DataChoice] = Field(
        ("synthetic",),
        description="synthetic (random, on the device), synthetic-host (random, through loader "
        "and copy), cifar100 or shards (files); an axis.",
    )
    num_samples: PositiveInt = Field(50_000, description="Samples in an epoch of synthetic data.")
    lengths: Lengths | None = Field(
        None,
        description="Lengths of the documents that a language model reads: {median: 300, sigma: "
        "1.0} (lognormal), or {file: lengths.txt}. Default: each sample is one of "
        "sequence_length tokens.",
    )
    packing: Axis[Packing] = Field(
        ("padded",),
        description="With lengths: padded (a document in each sample, filled up to the longest "
        "beside it) or packed (one after the other, which do not see each other); an axis.",
    )
    data_dir: str = Field(
        "data",
        description="Directory of cifar100, or of shards, which are written once and reused.",
    )
    num_shards: PositiveInt | None = Field(
        None, description="Number of files of a shards dataset; default: about 128 MB each."
    )
    total_mb: PositiveInt = Field(1024, description="Size of a shards dataset, in MB.")
    workers: Annotated[int, Field(ge=0)] = Field(
        2, description="Loader processes of each rank; 0 loads in the rank."
    )
    pin_memory: bool = Field(True, description="Copy to accelerators from pinned memory.")
    prefetch: PositiveInt = Field(2, description="Batches that each loader process keeps ready.")
    verify: bool = Field(True, description="Verify checksums of shards before they are reused.")
    drop_cache: bool = Field(
        False,
        description="Drop shards from the page cache before reading; the record says how many "
        "pages were still cached.",
    )
    download: bool = Field(False, description="Download cifar100 if it is not in data_dir.")


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


PRESETS: dict[str, dict[str, Any]] = {
    "standard": {
        "warmup_steps": 20,
        "warmup_seconds": 10.0,
        "warmup_max_seconds": 120.0,
        "min_steps": 100,
        "min_seconds": 10.0,
        "max_steps": 400,
        "max_seconds": 120.0,
        "target_half_width": 0.01,
        "steady_tolerance": 0.01,
    },
    "quick": {
        "warmup_steps": 5,
        "warmup_seconds": 1.0,
        "warmup_max_seconds": 6.0,
        "min_steps": 20,
        "min_seconds": 2.0,
        "max_steps": 400,
        "max_seconds": 5.0,
        "target_half_width": 0.05,
        "steady_tolerance": 0.05,
    },
}
"""Defaults of the measurement keys per preset; keys in the config win. ``standard`` is for figures
to publish (an interval within 1 % of the mean, two minutes at most); ``quick`` is for demos and
small machines (5 %, seconds): a few seconds there give no closer interval."""


class BenchmarkSettings(ConfigSection):
    """Warm-up, duration and repeats of a measurement."""

    preset: Preset = Field(
        "standard", description="standard, or quick for small machines and demos."
    )
    warmup_steps: Annotated[int, Field(ge=1)] = Field(
        20, description="At least this many steps before measuring."
    )
    warmup_seconds: Annotated[float, Field(ge=0)] = Field(
        10.0, description="At least this long before measuring."
    )
    warmup_max_seconds: PositiveSeconds = Field(
        120.0, description="Warm-up ends after this long even if not steady (flag not_steady)."
    )
    steady_tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01,
        description="Warm-up is steady when the mean step times of the last two batches differ by "
        "at most this share.",
    )
    min_steps: PositiveInt = Field(100, description="Measure at least this many steps …")
    min_seconds: PositiveSeconds = Field(10.0, description="… and at least this long.")
    max_steps: PositiveInt = Field(400, description="Stop after this many steps …")
    max_seconds: PositiveSeconds = Field(120.0, description="… or after this long (flag noisy).")
    target_half_width: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01,
        description="Stop when the ends of the 95 % interval of the mean step time are within "
        "this share of it.",
    )
    measure_steps: PositiveInt | None = Field(
        None, description="Measure exactly this many steps instead."
    )
    measure_seconds: PositiveSeconds | None = Field(
        None, description="Measure for this long instead."
    )
    sync_cuda: bool = Field(
        False,
        description="Synchronize the device around every step: exact per-step times, slower "
        "training.",
    )
    log_step_times: bool = Field(
        True, description="Write the times of every step of every rank as JSON lines."
    )
    repeats: PositiveInt = Field(
        1, description="Launches per cell, interleaved across cells; 3 or 5 for comparisons."
    )
    skip_larger_batches: bool = Field(
        False,
        description="After a batch size ran out of memory, skip the larger ones of its series.",
    )
    cell_seconds: PositiveSeconds | None = Field(
        None,
        description="Time budget of one launch, including start-up; the measurement is shortened "
        "to fit.",
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, data: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        preset = data.get("preset") if isinstance(data, dict) else None
        if isinstance(preset, str) and preset in PRESETS:
            return {**PRESETS[preset], **data}
        return data

    @model_validator(mode="after")
    def _one_bound(self) -> BenchmarkSettings:
        if self.measure_steps is not None and self.measure_seconds is not None:
            raise ValueError("measure_steps and measure_seconds cannot be combined; keep one")
        return self


class LaunchSettings(ConfigSection):
    """Devices, placement, processes and timeouts of a launch."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(
        1,
        description="Nodes of the sweep; each runs the same command, with its --node-rank. "
        "--nnodes sets it.",
    )
    devices_per_node: PositiveInt | None = Field(
        None,
        description="Ranks on each node of a launch over several nodes; default: as many as each "
        "node has devices.",
    )
    join_timeout_seconds: PositiveSeconds = Field(
        300.0, description="The first node waits this long for the others, and they for it."
    )
    node_timeout_seconds: Annotated[float, Field(ge=1)] = Field(
        30.0,
        description="A node that is silent for this long is lost: its launch ends on every node.",
    )
    devices: (
        Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)]
        | Literal["auto"]
    ) = Field(
        "auto",
        description="GPU indices (or CPU core indices) to use, in this order; auto uses all, "
        "ordered by placement.",
    )
    placement: Placement = Field(
        "packed",
        description="GPUs used by a smaller count: packed fills one NUMA node first, spread "
        "alternates between nodes.",
    )
    numa_binding: bool = Field(
        True, description="Bind each rank to the cores of its GPU's NUMA node, if known."
    )
    oversubscribe: bool = Field(
        False,
        description="Let ranks share devices (over gloo): for correctness tests, not speed; every "
        "result is flagged.",
    )
    isolation: Isolation = Field(
        "auto",
        description="cell: a torchrun command for each launch; group: on CPUs torchrun's agent "
        "for each launch in a fork of one process that has imported PyTorch, on other devices one "
        "torchrun whose ranks run all cells in turn, those of fewer ranks in a part of them; a "
        "cell that fails is run again in new processes; auto: group on CPUs, else cell.",
    )
    threads_per_rank: PositiveInt | None = Field(
        None,
        description="CPU threads of each rank; default: cores ÷ the largest device count that "
        "fits, at every count (÷ the largest where none fits).",
    )
    malloc: Malloc = Field(
        "keep",
        description="keep: glibc keeps the memory that a step frees for the next step; system: "
        "its own defaults, which may return it in every step. Variables (MALLOC_*, GLIBC_TUNABLES) "
        "and other allocators (LD_PRELOAD) win.",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment variables of the worker processes."
    )
    timeout_seconds: PositiveSeconds = Field(
        1800.0, description="A launch that takes longer is terminated (state timeout)."
    )
    stall_timeout_seconds: PositiveSeconds = Field(
        300.0,
        description="A launch that reports no progress for this long is terminated (state "
        "timeout).",
    )

    @field_validator("env")
    @classmethod
    def _env_names(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _ENV_NAME.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} is not a valid environment variable")
        return env

    @field_validator("devices")
    @classmethod
    def _distinct(cls, devices: tuple[int, ...] | str) -> tuple[int, ...] | str:
        if not devices or len(set(devices)) != len(devices):
            raise ValueError("list each device once")
        return devices


class ProfilingSettings(ConfigSection):
    """Which cells are profiled: after all measurements, each in a separate launch that is excluded
    from throughput."""

    enabled: bool = Field(False, description="Profile cells.")
    tool: Literal["auto", "nsys", "kineto"] = Field(
        "auto",
        description="auto: nsys on CUDA if it can record and export, else torch.profiler (kineto).",
    )
    trigger: Annotated[
        Literal["sync_stall_detection", "always", "never"] | tuple[str, ...],
        BeforeValidator(as_tuple),
    ] = Field(
        "sync_stall_detection",
        description="sync_stall_detection: cells in which a bottleneck was found, and all cells "
        "of a run on single devices; always; never; or a list of cell ids, where * matches any "
        "text.",
    )
    target: Literal["sync_stalls", "kernels", "memory", "input", "all"] = Field(
        "sync_stalls", description="What is recorded: memory and all also record allocations."
    )
    seconds: PositiveSeconds = Field(10.0, description="Record for this long, in whole steps.")
    max_steps: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="Record at most this many steps; not set: 200 with torch.profiler, 1000 with "
        "nsys.",
    )
