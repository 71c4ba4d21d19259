"""An experiment as the user writes it: strict, typed; the keys of the top level and the rules
across sections.

The YAML reader and the wording of errors live in :mod:`torchscale.config.load`; this module says
what is valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    field_validator,
    model_validator,
)

from torchscale.catalog.model_facts import OptionValue
from torchscale.catalog.model_options import option_problem
from torchscale.catalog.models import find_model
from torchscale.config.base import Axis, AxisSchema, ConfigSection, PositiveInt, as_axis, as_named
from torchscale.config.choices import CellKind, DeviceRequest, Scaling
from torchscale.config.script import BATCH, FORMS, WORLD_SIZE, ScriptChoice, placeholders
from torchscale.config.sections.benchmark import BenchmarkSettings
from torchscale.config.sections.data import DataSettings
from torchscale.config.sections.export import ExportSettings
from torchscale.config.sections.launch import LaunchSettings, ProfilingSettings
from torchscale.config.sections.machine import (
    CheckpointSettings,
    CollectivesSettings,
    HardwareSettings,
    MemorySettings,
    TelemetrySettings,
)
from torchscale.config.sections.models import ModelChoice, ModelSettings
from torchscale.config.sections.training import ParallelSettings, TrainingSettings

_SAFE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._ -]{0,98}[A-Za-z0-9._-])?")

_NO_MODELS: tuple[Any, ...] = ()
"""The value of ``models`` and ``batch_sizes`` where nothing is trained."""


def _as_axis_if_needed(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    if value is _NO_MODELS:
        return value
    return as_axis(value)


def _as_named_if_needed(value: Any) -> Any:  # noqa: ANN401 - raw input from YAML
    if value is _NO_MODELS:
        return value
    return as_named(value)


_A_MODEL, _A_SCRIPT = "a model", "a script of your own"
"""Labels that no key of an entry has."""


def _entry_kind(entry: Any) -> str:  # noqa: ANN401 - raw input from YAML
    """Whether an entry of ``models`` is a script: it has the key of one, and no name."""
    if isinstance(entry, ScriptChoice):
        return _A_SCRIPT
    if isinstance(entry, dict) and "name" not in entry and any(form in entry for form in FORMS):
        return _A_SCRIPT
    return _A_MODEL


ModelEntry = Annotated[
    Annotated[ModelChoice, Tag(_A_MODEL)] | Annotated[ScriptChoice, Tag(_A_SCRIPT)],
    Discriminator(_entry_kind),
]


class Experiment(ConfigSection):
    """A config file after overrides: every key with its value or default."""

    experiment_name: str = Field(
        "experiment", description="Names the results directory: results/<experiment_name>."
    )
    models: Annotated[
        tuple[ModelEntry, ...],
        BeforeValidator(_as_axis_if_needed),
        BeforeValidator(_as_named_if_needed),
        AxisSchema({"type": "string"}),
    ] = Field(
        description="Model names, import paths, mappings {name: …, option: …}, or programs of your "
        "own {script: …}; an axis."
    )
    batch_sizes: Annotated[
        tuple[PositiveInt, ...], BeforeValidator(_as_axis_if_needed), AxisSchema()
    ] = Field(
        description="Samples per device and step (weak scaling), or per step over all devices "
        "(strong scaling); an axis."
    )
    gpu_counts: Axis[PositiveInt] | Literal["auto"] = Field(
        "auto",
        description="World sizes; auto uses 1, 2, 4, … up to the available devices; an axis.",
    )
    nodes: Axis[PositiveInt] | None = Field(
        None,
        description="Numbers of nodes, all devices of each, in place of gpu_counts: world size = "
        "nodes × devices per node; an axis.",
    )
    device: DeviceRequest = Field(
        "auto", description="cuda, cpu, or auto: CUDA if available to torch, else CPU."
    )
    measure: Annotated[tuple[CellKind, ...], BeforeValidator(as_axis), AxisSchema()] = Field(
        ("training",),
        description="What is measured: training, collectives, hardware, memory, checkpoint; training, "
        "memory and checkpoint need models and batch_sizes.",
    )
    scaling: Scaling = Field(
        "weak", description="weak: fixed batch per device; strong: fixed global batch."
    )
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    parallel: ParallelSettings = Field(default_factory=ParallelSettings)
    benchmark: BenchmarkSettings = Field(default_factory=BenchmarkSettings)
    launch: LaunchSettings = Field(default_factory=LaunchSettings)
    profiling: ProfilingSettings = Field(default_factory=ProfilingSettings)
    collectives: CollectivesSettings = Field(default_factory=CollectivesSettings)
    hardware: HardwareSettings = Field(default_factory=HardwareSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    export: ExportSettings = Field(default_factory=ExportSettings)

    _hidden: Mapping[str, OptionValue] = PrivateAttr(default_factory=dict)

    @property
    def hidden(self) -> Mapping[str, OptionValue]:
        """What stands in place of a secret (``s3://<redacted>@bucket``) → the value; never written
        to a file."""
        return self._hidden

    def with_hidden(self, hidden: Mapping[str, OptionValue]) -> Experiment:
        """This experiment, whose texts stand for these values."""
        copied = self.model_copy()
        copied._hidden = hidden
        return copied

    @model_validator(mode="before")
    @classmethod
    def _models_only_where_needed(cls, data: Any) -> Any:  # noqa: ANN401 - raw input from YAML
        """Fill in ``models`` and ``batch_sizes``, which may be left out where nothing is trained,
        and ``batch_sizes`` where no script is told one."""
        measure = data.get("measure") if isinstance(data, dict) else None
        kinds = measure if isinstance(measure, list | tuple) else [measure]
        if measure is None or any(kind in kinds for kind in ("training", "memory", "checkpoint")):
            if isinstance(data, dict) and not data.get("batch_sizes") and _need_no_batch(data):
                return {**data, "batch_sizes": _NO_MODELS}
            return data
        return {
            **data,
            **{key: _NO_MODELS for key in ("models", "batch_sizes") if not data.get(key)},
        }

    @field_validator("experiment_name")
    @classmethod
    def _safe_name(cls, name: str) -> str:
        if not _SAFE_NAME.fullmatch(name) or ".." in name:
            raise ValueError(
                "must be a plain file name of at most 100 characters: letters, digits, '.', '_', "
                "'-' and spaces"
            )
        return name

    @model_validator(mode="after")
    def _options_fit(self) -> Experiment:
        """Every option must be accepted by a model of this experiment, with a value of the
        default's type."""
        problems: dict[tuple[str | int, ...], str] = {}
        takers, others = [], 0
        for index, choice in enumerate(self.models):
            if isinstance(choice, ScriptChoice):
                continue
            facts = find_model(choice.name)
            if facts is None:
                others += 1
                continue
            takers.append(facts.options)
            for key, value in choice.options.items():
                problems["models", index, key] = option_problem(key, value, facts.options)
        if self.models and not others:
            known = {key: default for options in takers for key, default in options.items()}
            for key, value in self.model.options.items():
                problems["model", "options", key] = option_problem(key, value, known)
        if any(problems.values()):
            raise KeyProblems({path: text for path, text in problems.items() if text})
        return self

    @model_validator(mode="after")
    def _no_model_twice(self) -> Experiment:
        """Two entries that build the same model would be the same cell."""
        seen: dict[str, int] = {}
        for index, choice in enumerate(self.models):
            same = repr((choice.name, sorted(self.options_of(choice).items())))
            what = "builds the same model as"
            if isinstance(choice, ScriptChoice):
                same, what = repr((choice.form, choice.text)), "runs the same program as"
            if same in seen:
                raise KeyProblems({("models", index): f"{what} models[{seen[same]}]; keep one"})
            seen[same] = index
        return self

    @model_validator(mode="after")
    def _commands_know_their_ranks(self) -> Experiment:
        """A command with a launcher of its own must be told how many ranks to start."""
        for index, choice in enumerate(self.models):
            if not isinstance(choice, ScriptChoice) or choice.form != "command":
                continue
            if self.gpu_counts != (1,) and not (choice.uses(WORLD_SIZE) or choice.uses("gpus")):
                text = (
                    "names no {world_size}, so that every count would start as many ranks; add it "
                    "(--nproc-per-node {world_size}), or set gpu_counts: [1]"
                )
                raise KeyProblems({("models", index, "command"): text})
        return self

    @model_validator(mode="after")
    def _counts_or_nodes(self) -> Experiment:
        if self.nodes is not None and self.gpu_counts != "auto":
            raise KeyProblems({("nodes",): "cannot be combined with gpu_counts; keep one"})
        return self

    @model_validator(mode="after")
    def _no_epochs_of_scripts(self) -> Experiment:
        training = self.training
        for name, epochs in (
            ("epochs", training.epochs),
            ("warmup_epochs", training.warmup_epochs),
        ):
            if epochs is not None and any(isinstance(one, ScriptChoice) for one in self.models):
                text = "the epochs of a script of your own are not seen; use the keys of benchmark"
                raise KeyProblems({("training", name): text})
        return self

    @model_validator(mode="after")
    def _one_bound(self) -> Experiment:
        if self.training.epochs is not None and (
            self.benchmark.measure_steps or self.benchmark.measure_seconds
        ):
            text = (
                "cannot be combined with benchmark.measure_steps or benchmark.measure_seconds; keep "
                "one"
            )
            raise KeyProblems({("training", "epochs"): text})
        return self

    def options_of(self, choice: ModelChoice | ScriptChoice) -> dict[str, OptionValue]:
        """The model's options: catalog defaults, then the shared options that it accepts, then its
        own. Of a script those of its own with a single value."""
        if isinstance(choice, ScriptChoice):
            return choice.options
        facts = find_model(choice.name)
        if facts is None:
            return {**self.model.options, **choice.options}
        shared = {key: value for key, value in self.model.options.items() if key in facts.options}
        return {**facts.options, **shared, **choice.options}


def _need_no_batch(data: Mapping[str, Any]) -> bool:
    """Whether all entries of ``models`` are scripts, none of which is told its batch size."""
    models = data.get("models")
    entries = models if isinstance(models, list | tuple) else [models]
    texts = [
        [str(entry[form]) for form in FORMS if form in entry and form != "watched"]
        for entry in entries
        if isinstance(entry, dict) and _entry_kind(entry) == _A_SCRIPT
    ]
    if not texts or len(texts) < len(entries):
        return False
    return not any(BATCH in placeholders(text) for of_entry in texts for text in of_entry)


class KeyProblems(ValueError):
    """Mistakes that concern several keys, each with the path of the key to report."""

    def __init__(self, problems: Mapping[tuple[str | int, ...], str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = problems
