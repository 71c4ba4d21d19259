"""An experiment as the user writes it: strict, typed, with every default in one place.

The YAML reader and the wording of errors live in :mod:`torchscale.schema.loading`; this module says what is valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from torchscale.catalog.models import OPTION_ALIASES, OptionValue, find_model, is_import_path
from torchscale.schema.ceilings import CellKind, Collectives, Hardware, Memory, Telemetry
from torchscale.schema.section import Axis, AxisSchema, Positive, PositiveSeconds, Section, as_axis, as_named, as_tuple
from torchscale.schema.strategy import Strategy, StrategyAxis, strategy_label

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
OptimizerName = Literal["sgd", "adam", "adamw"]
DeviceRequest = Literal["auto", "cuda", "cpu", "mps", "xpu"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Checkpointing = Literal["none", "selective", "full"]
DataSource = Literal["synthetic", "synthetic-host", "cifar100", "shards"]
Isolation = Literal["cell", "group"]
Placement = Literal["packed", "spread"]
Scaling = Literal["weak", "strong"]
Preset = Literal["standard", "quick"]

_SAFE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._ -]{0,98}[A-Za-z0-9._-])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _as_precision(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    """``amp`` is the name many users know for fp16 autocast with a gradient scaler."""
    if isinstance(value, list | tuple):
        return [_as_precision(item) for item in value]
    return "fp16" if value == "amp" else value


class ModelChoice(Section):
    """One entry of ``models``: a name with options of its own. Written as plain text where it has none."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        description="A catalogued model (`torchscale list models`), torchvision:NAME, timm:NAME, "
        "hf:PATH/config.json, or "
        "`package.module:function`."
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
        return with_usual_names(data) if isinstance(data, dict) else data

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options given beside ``name``."""
        return dict(self.__pydantic_extra__ or {})


def with_usual_names(options: dict[str, Any]) -> dict[str, Any]:
    """Options under the names of the catalog: ``seq_len`` is ``sequence_length``. Given both ways, both stay, and the
    check for unknown options finds the other one."""
    return {
        key if OPTION_ALIASES.get(key, key) in options else OPTION_ALIASES.get(key, key): value
        for key, value in options.items()
    }


class Training(Section):
    """How a step is made."""

    precision: Annotated[
        tuple[Precision, ...],
        BeforeValidator(as_axis),
        BeforeValidator(_as_precision),
        AxisSchema({"const": "amp"}),
    ] = Field(("fp32",), description="fp32, tf32 (CUDA only), fp16 (also written amp), bf16 or fp8; an axis.")
    optimizer: Axis[OptimizerName] = Field(("adamw",), description="sgd, adam or adamw; an axis.")
    fused: Axis[bool] = Field((False,), description="The optimizer's fused implementation; an axis.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(1e-4, description="Constant over the run.")
    gradient_accumulation: Axis[Positive] = Field(
        (1,), description="Cut a step's batch into this many passes, gradients exchanged after the last; an axis."
    )
    activation_checkpointing: Axis[Checkpointing] = Field(
        ("none",),
        description="full recomputes every block in the backward pass, selective all but matrix products and "
        "attention; "
        "an axis.",
    )
    gradient_clipping: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Clip gradients to this total norm."
    )
    deterministic: bool = Field(False, description="Deterministic algorithms alone; those without one fail.")
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="Of weights (all ranks) and data (seed + rank).")
    cudnn_benchmark: bool = Field(True, description="Let cuDNN try its convolution algorithms during warm-up.")
    epochs: Positive | None = Field(
        None, description="Measure this many epochs of the data instead of the adaptive rule."
    )
    warmup_epochs: Positive | None = Field(None, description="Warm up for this many epochs of the data instead.")


class ModelSettings(Section):
    """What holds for every model."""

    channels_last: Axis[bool] = Field((False,), description="NHWC memory format for image models; an axis.")
    compile: Axis[bool | CompileMode] = Field(
        (False,),
        description="torch.compile the model: true, or a mode (reduce-overhead, max-autotune, …); compile time is kept "
        "apart; an axis.",
    )
    options: dict[str, OptionValue] = Field(
        default_factory=dict,
        description="Options for every model that takes them: image_size, num_classes, sequence_length.",
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
        return with_usual_names(options) if isinstance(options, dict) else options


class Data(Section):
    """Where batches come from."""

    source: Axis[DataSource] = Field(
        ("synthetic",),
        description="synthetic (random, on the device), synthetic-host (random, through loader and copy), cifar100 or "
        "shards (files); an axis.",
    )
    num_samples: Positive = Field(50_000, description="Size of an epoch of synthetic data, in samples.")
    data_dir: str = Field("data", description="Where cifar100 lies, or where shards are written and reused.")
    num_shards: Positive | None = Field(None, description="Files of a shards dataset; default: of about 128 MB each.")
    total_mb: Positive = Field(1024, description="Size of a shards dataset, in MB.")
    workers: Annotated[int, Field(ge=0)] = Field(2, description="Loader processes of each rank; 0 loads in the rank.")
    pin_memory: bool = Field(True, description="Copy from pinned memory (on accelerators).")
    prefetch: Positive = Field(2, description="Batches that each loader process keeps ready.")
    verify: bool = Field(True, description="Check the checksums of shards before they are used again.")
    drop_cache: bool = Field(
        False, description="Ask for cold reads of shards; the record says whether pages were in memory all the same."
    )
    download: bool = Field(False, description="Fetch cifar100 where it is not in data_dir.")


class Parallel(Section):
    """How a model is spread over devices."""

    strategy: StrategyAxis = Field(
        ("ddp",),
        validate_default=True,
        description="none, ddp, zero1, fsdp, tensor, sequence, pipeline, model or hybrid, or mappings {name: …, "
        "option: "
        "…}; an axis.",
    )

    @field_validator("strategy")
    @classmethod
    def _none_twice(cls, strategies: tuple[Strategy, ...]) -> tuple[Strategy, ...]:
        """Options at their defaults make no other strategy, and would make one cell twice."""
        for index, strategy in enumerate(strategies):
            if strategy in strategies[:index]:
                raise ValueError(f"{strategy_label(strategy)} stands twice; each value of an axis is measured once")
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
        "target_half_width": 0.02,
        "steady_tolerance": 0.02,
    },
}
"""Defaults of the measurement keys per preset; a key that the user writes wins."""


class Benchmark(Section):
    """How long and how often a cell is measured."""

    preset: Preset = Field("standard", description="standard, or quick for small machines and demos.")
    warmup_steps: Annotated[int, Field(ge=1)] = Field(20, description="At least this many steps before measuring.")
    warmup_seconds: Annotated[float, Field(ge=0)] = Field(10.0, description="At least this long before measuring.")
    warmup_max_seconds: PositiveSeconds = Field(
        120.0, description="Warm-up ends here, steady or not (flag not_steady)."
    )
    steady_tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01, description="Warm-up is steady when the last two batches' mean step times differ by no more than this."
    )
    min_steps: Positive = Field(100, description="The adaptive rule measures at least this many steps …")
    min_seconds: PositiveSeconds = Field(10.0, description="… and at least this long.")
    max_steps: Positive = Field(400, description="It stops at this many steps …")
    max_seconds: PositiveSeconds = Field(120.0, description="… or after this long (flag noisy).")
    target_half_width: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01, description="It stops when the 95 % interval of the mean step time is within ± this share."
    )
    measure_steps: Positive | None = Field(None, description="Measure exactly this many steps instead.")
    measure_seconds: PositiveSeconds | None = Field(None, description="Measure for this long instead.")
    sync_cuda: bool = Field(False, description="Synchronise around every step: strict per-step times, slower training.")
    log_step_times: bool = Field(True, description="Keep every step of every rank as JSON lines.")
    repeats: Positive = Field(1, description="Launches per cell, interleaved across cells; 3 or 5 for comparisons.")
    skip_larger_batches: bool = Field(
        False, description="Once a batch size ran out of memory, skip the larger ones of its series."
    )
    cell_seconds: PositiveSeconds | None = Field(
        None, description="Time budget of one launch, start-up included; the measurement shrinks to fit."
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, data: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        preset = data.get("preset") if isinstance(data, dict) else None
        return {**PRESETS[preset], **data} if isinstance(preset, str) and preset in PRESETS else data

    @model_validator(mode="after")
    def _one_bound(self) -> Benchmark:
        if self.measure_steps is not None and self.measure_seconds is not None:
            raise ValueError("measure_steps and measure_seconds exclude each other; keep one")
        return self


class Launch(Section):
    """How the ranks are started."""

    devices: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)] | Literal["auto"] = Field(
        "auto",
        description="GPU indices (or CPU core indices) to use, in this order; auto takes all, as placement says.",
    )
    placement: Placement = Field(
        "packed", description="Which GPUs a smaller count takes: packed fills one NUMA node first, spread alternates."
    )
    numa_binding: bool = Field(True, description="Bind each rank to the cores of its GPU's NUMA node, where known.")
    oversubscribe: bool = Field(
        False, description="Let ranks share devices (over gloo), flagged in every result: for correctness, not speed."
    )
    isolation: Isolation = Field(
        "cell",
        description="cell: a torchrun for each launch; group: one torchrun runs all cells of a world size in "
        "turn, and a "
        "cell that fails there runs again by itself.",
    )
    threads_per_rank: Positive | None = Field(
        None, description="CPU threads of each rank; default: cores ÷ the largest count that fits, for every count."
    )
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables for the workers.")
    timeout_seconds: PositiveSeconds = Field(1800.0, description="A launch that takes longer is ended: timeout.")
    stall_timeout_seconds: PositiveSeconds = Field(
        300.0, description="A launch that reports no progress for this long is ended: timeout."
    )

    @field_validator("env")
    @classmethod
    def _env_names(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _ENV_NAME.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} is not an environment variable that can be set")
        return env

    @field_validator("devices")
    @classmethod
    def _distinct(cls, devices: tuple[int, ...] | str) -> tuple[int, ...] | str:
        if not devices or len(set(devices)) != len(devices):
            raise ValueError("name each device once")
        return devices


class Profiling(Section):
    """Which cells are profiled: after all measurements, each in a launch of its own that feeds no throughput."""

    enabled: bool = Field(False, description="Whether cells are profiled at all.")
    tool: Literal["auto", "nsys", "kineto"] = Field(
        "auto", description="auto: nsys on CUDA where it can record and export, else torch.profiler (kineto)."
    )
    trigger: Annotated[
        Literal["sync_stall_detection", "always", "never"] | tuple[str, ...], BeforeValidator(as_tuple)
    ] = Field(
        "sync_stall_detection",
        description="sync_stall_detection: cells in whose measurement a bottleneck was found; always; never; "
        "or a list of cell ids, in which * stands for anything.",
    )
    target: Literal["sync_stalls", "kernels", "memory", "input", "all"] = Field(
        "sync_stalls", description="What is recorded beside the spans: memory and all record allocations too."
    )
    seconds: PositiveSeconds = Field(10.0, description="Record for this long, in whole steps.")
    max_steps: Annotated[int, Field(ge=2)] = Field(200, description="But no more steps than this.")


_NO_MODELS: tuple[Any, ...] = ()
"""Stands for ``models`` and ``batch_sizes`` where nothing is trained."""


def _as_axis_if_needed(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    return value if value is _NO_MODELS else as_axis(value)


def _as_named_if_needed(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    return value if value is _NO_MODELS else as_named(value)


class Experiment(Section):
    """A whole config file after overrides."""

    experiment_name: str = Field("experiment", description="Names the results directory: results/<experiment_name>.")
    models: Annotated[
        tuple[ModelChoice, ...],
        BeforeValidator(_as_axis_if_needed),
        BeforeValidator(_as_named_if_needed),
        AxisSchema({"type": "string"}),
    ] = Field(description="Model names, import paths, or mappings {name: …, option: …}; an axis.")
    batch_sizes: Annotated[tuple[Positive, ...], BeforeValidator(_as_axis_if_needed), AxisSchema()] = Field(
        description="Samples per device and step (weak scaling), or per step over all devices (strong); an axis."
    )
    gpu_counts: Axis[Positive] | Literal["auto"] = Field(
        "auto", description="World sizes; auto takes 1, 2, 4, … up to what is there; an axis."
    )
    device: DeviceRequest = Field("auto", description="cuda, cpu, or auto: CUDA where torch sees it, else CPU.")
    measure: Annotated[tuple[CellKind, ...], BeforeValidator(as_axis), AxisSchema()] = Field(
        ("training",),
        description="What is measured: training, collectives, hardware, memory; models and batch_sizes are needed for "
        "the first and the last alone.",
    )
    scaling: Scaling = Field("weak", description="weak: batch per device fixed; strong: global batch fixed.")
    training: Training = Field(default_factory=Training)
    model: ModelSettings = Field(default_factory=ModelSettings)
    data: Data = Field(default_factory=Data)
    parallel: Parallel = Field(default_factory=Parallel)
    benchmark: Benchmark = Field(default_factory=Benchmark)
    launch: Launch = Field(default_factory=Launch)
    profiling: Profiling = Field(default_factory=Profiling)
    collectives: Collectives = Field(default_factory=Collectives)
    hardware: Hardware = Field(default_factory=Hardware)
    memory: Memory = Field(default_factory=Memory)
    telemetry: Telemetry = Field(default_factory=Telemetry)

    @model_validator(mode="before")
    @classmethod
    def _models_only_where_needed(cls, data: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        """Without anything to train, ``models`` and ``batch_sizes`` may be left out."""
        measure = data.get("measure") if isinstance(data, dict) else None
        kinds = measure if isinstance(measure, list | tuple) else [measure]
        if measure is None or "training" in kinds or "memory" in kinds:
            return data
        return {**data, **{key: _NO_MODELS for key in ("models", "batch_sizes") if not data.get(key)}}

    @field_validator("experiment_name")
    @classmethod
    def _safe_name(cls, name: str) -> str:
        if not _SAFE_NAME.fullmatch(name) or ".." in name:
            raise ValueError("must be a plain file name: letters, digits, '.', '_', '-' and spaces, at most 100")
        return name

    @model_validator(mode="after")
    def _options_fit(self) -> Experiment:
        """Every option must be one that a model of this experiment takes, and of the default's type."""
        problems: dict[tuple[str | int, ...], str] = {}
        for index, choice in enumerate(self.models):
            facts = find_model(choice.name)
            if facts is not None:
                for key, value in choice.options.items():
                    problems["models", index, key] = _option_problem(key, value, facts.options)
        takers = [facts.options for choice in self.models if (facts := find_model(choice.name)) is not None]
        if self.models and len(takers) == len(self.models):
            known = {key: default for options in takers for key, default in options.items()}
            for key, value in self.model.options.items():
                problems["model", "options", key] = _option_problem(key, value, known)
        if any(problems.values()):
            raise KeyProblems({path: text for path, text in problems.items() if text})
        return self

    @model_validator(mode="after")
    def _no_model_twice(self) -> Experiment:
        """Two entries that build the same would be one cell twice."""
        seen: dict[str, int] = {}
        for index, choice in enumerate(self.models):
            same = repr((choice.name, sorted(self.options_of(choice).items())))
            if same in seen:
                raise KeyProblems({("models", index): f"builds the same as models[{seen[same]}]; keep one"})
            seen[same] = index
        return self

    @model_validator(mode="after")
    def _one_bound(self) -> Experiment:
        if self.training.epochs is not None and (self.benchmark.measure_steps or self.benchmark.measure_seconds):
            text = "excludes benchmark.measure_steps and benchmark.measure_seconds; keep one"
            raise KeyProblems({("training", "epochs"): text})
        return self

    def options_of(self, choice: ModelChoice) -> dict[str, OptionValue]:
        """Defaults of the catalog, then those shared options that this model takes, then its own."""
        facts = find_model(choice.name)
        if facts is None:
            return {**self.model.options, **choice.options}
        shared = {key: value for key, value in self.model.options.items() if key in facts.options}
        return {**facts.options, **shared, **choice.options}


class KeyProblems(ValueError):
    """Mistakes that only the whole config shows, each by the path of the key that it is about."""

    def __init__(self, problems: Mapping[tuple[str | int, ...], str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = problems


def _option_problem(name: str, value: OptionValue, known: Mapping[str, OptionValue]) -> str:
    """What is wrong with a model's option; empty if nothing is."""
    if name not in known:
        return f"no model here takes the option {name!r}; known: {', '.join(sorted(known))}"
    default = known[name]
    if type(value) is not type(default) or (isinstance(value, int) and value < 1):
        return f"expected a positive whole number such as {default}"
    return ""
