"""A cell: one workload in one setting at one world size, with its measurement rules."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, PrivateAttr, field_serializer, model_validator

from torchscale.catalog.model_facts import OptionValue
from torchscale.catalog.model_options import (
    changed_options,
    model_title,
    options_suffix,
    options_text,
)
from torchscale.config.choices import (
    Checkpointing,
    CompileMode,
    DataSource,
    DeviceRequest,
    OptimizerName,
    Packing,
    Precision,
    Preset,
    Scaling,
)
from torchscale.config.degrees import Degrees
from torchscale.config.strategy import Strategy, strategy_label, strategy_options
from torchscale.schema.base import Count, Frozen, NotNegative, Positive, PositiveCount
from torchscale.schema.cells.script import OWN, Script
from torchscale.schema.ident import content_hash, file_name


class Measurement(Frozen):
    """When warm-up and measurement end; the fields are those of ``benchmark:`` and
    ``training.epochs``."""

    preset: Preset
    warmup_steps: Count
    warmup_seconds: NotNegative
    warmup_max_seconds: NotNegative
    steady_tolerance: NotNegative
    min_steps: Count
    min_seconds: NotNegative
    max_steps: Count
    max_seconds: NotNegative
    target_half_width: NotNegative
    measure_steps: Count | None = None
    measure_seconds: NotNegative | None = None
    epochs: Count | None = None
    warmup_epochs: Count | None = None
    sync_cuda: bool = False


class Loader(Frozen):
    """How batches come through a loader; the fields are those of ``data:``."""

    data_dir: str
    num_shards: Count | None = None
    total_mb: Count
    workers: Count
    pin_memory: bool
    prefetch: Count
    verify: bool
    drop_cache: bool
    download: bool


WIDTH_MULTIPLE = 8
"""Samples are padded to a multiple of this many tokens: tensor cores want it of the sizes of 16-bit
matrices, and sequence parallelism that its devices divide them."""


class SampleLengths(Frozen):
    """Lengths of the documents in samples; the fields are those of ``data.lengths``, and
    ``data.packing``."""

    packing: Packing
    median: PositiveCount | None = None
    sigma: NotNegative | None = None
    file: str | None = None


class TrainingCell(Frozen):
    """One training cell. Its id says what was asked, never where it ran.

    ``batch_size`` is per device under weak scaling and global under strong scaling, as the user
    wrote it; ``None`` for a ``script`` that is not told it. Of a script, ``model`` is the name and
    ``model_options`` are the values of its own placeholders; what it does by itself is ``own``.
    """

    kind: Literal["training"] = "training"
    model: str
    model_options: dict[str, OptionValue] = Field(default_factory=dict)
    batch_size: PositiveCount | None
    scaling: Scaling
    world_size: PositiveCount
    device: DeviceRequest
    precision: Precision
    strategy: Strategy
    optimizer: OptimizerName
    learning_rate: Positive | None
    channels_last: bool
    compile: bool | CompileMode
    seed: Count
    cudnn_benchmark: bool
    data_source: DataSource
    num_samples: Count
    measurement: Measurement
    fused: bool = False
    gradient_accumulation: PositiveCount = 1
    activation_checkpointing: Checkpointing = "none"
    gradient_clipping: Positive | None = None
    deterministic: bool = False
    loader: Loader | None = None
    script: Script | None = None
    lengths: SampleLengths | None = None
    _apart: str = PrivateAttr("")

    @property
    def is_watched(self) -> bool:
        """Whether it stands for a program that ``watch`` ran, and no sweep."""
        return self.script is not None and self.script.form == "watched"

    @cached_property
    def apart(self) -> str:
        """The arguments that tell a script from others of its name in a run, for people: no part of
        its content. Empty where nothing else has the name."""
        return self._apart

    def told_apart(self, words: str) -> TrainingCell:
        """The same cell, with these as :attr:`apart`."""
        if words == self._apart:
            return self
        copied = self.model_copy()
        copied._apart = words
        return copied

    @model_validator(mode="after")
    def _own_values_are_of_scripts(self) -> TrainingCell:
        if self.script is not None:
            return self
        absent = [name for name in ("batch_size", "learning_rate") if getattr(self, name) is None]
        own = [
            name for name in ("precision", "optimizer", "data_source") if getattr(self, name) == OWN
        ]
        own += ["strategy"] * (self.strategy.name == OWN)
        if absent or own:
            raise ValueError(f"{(absent + own)[0]} is missing, which only a script leaves open")
        return self

    @field_serializer("strategy")
    def _plain_strategy(self, strategy: Strategy) -> str | dict[str, OptionValue]:
        """Text where it has no options, as people write it."""
        options = strategy_options(strategy)
        return {"name": strategy.name, **options} if options else strategy.name

    @property
    def degrees(self) -> Degrees:
        """How the devices share the work.

        Raises:
            ValueError: the strategy does not fit this world size.
        """
        return self.strategy.degrees(self.world_size)

    @property
    def copy_batch_size(self) -> int:
        """Samples that one copy of the model processes per step: all devices that work on the same
        samples."""
        return self.global_batch_size // self.degrees.data

    @property
    def per_device_batch_size(self) -> int:
        """Each device's share of a step's samples.

        Raises:
            ValueError: a script is not told its batch size.
        """
        if self.batch_size is None:
            raise ValueError(f"{self.model} is not told its batch size")
        return self.batch_size if self.scaling == "weak" else self.batch_size // self.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples all ranks process per step."""
        return self.per_device_batch_size * self.world_size

    @cached_property
    def title(self) -> str:
        """The model as people call it, with what tells it from its variants."""
        return model_title(self.model, self.model_options)

    @cached_property
    def model_name(self) -> str:
        """The model as a config names it, with what tells it from its variants."""
        return self.model + options_suffix(self.model, self.model_options)

    @property
    def options_text(self) -> str:
        """The model's options that differ from their defaults: ``d_model=256, num_layers=2``."""
        return options_text(changed_options(self.model, self.model_options))

    @cached_property
    def setting(self) -> str:
        """What sets a cell apart besides model, batch and count, in words: precision, strategy,
        switches."""
        if self.script is not None:
            told = [self.precision] if self.script.knows_precision else []
            return " ".join([*told, "own script"])
        label = strategy_label(self.strategy)
        return " ".join([self.precision, *([label] if label != "ddp" else []), *self.settings])

    @property
    def settings(self) -> tuple[str, ...]:
        """What sets the cell apart besides model, batch, count, precision and strategy, in words;
        empty by default, and for a script, which sets all of it."""
        if self.script is not None:
            return ()
        words: list[str] = [self.optimizer] if self.optimizer != "adamw" else []
        words += ["fused"] if self.fused else []
        words += ["channels_last"] if self.channels_last else []
        if self.compile:
            words.append(
                "compile" if self.compile in (True, "default") else f"compile={self.compile}"
            )
        words += (
            [f"accumulate={self.gradient_accumulation}"] if self.gradient_accumulation > 1 else []
        )
        words += (
            [f"checkpoint={self.activation_checkpointing}"]
            if self.activation_checkpointing != "none"
            else []
        )
        words += [f"clip={self.gradient_clipping:g}"] if self.gradient_clipping is not None else []
        words += ["deterministic"] if self.deterministic else []
        words += [self.lengths.packing] if self.lengths is not None else []
        return (*words, *([self.data_source] if self.data_source != "synthetic" else []))

    @cached_property
    def id(self) -> str:
        """Readable and stable: ``resnet50-b64-n4-fp32-ddp-1a2b3c4d``; ends in a hash of the whole
        content."""
        digest = content_hash(_without_unset(self.model_dump(mode="json")))
        name = file_name(self.model) or "model"
        batch = f"b{self.batch_size}" if self.scaling == "weak" else f"g{self.batch_size}"
        words = [name, batch, f"n{self.world_size}", self.precision, self.strategy.name, digest]
        if self.batch_size is None:
            words.remove(batch)
        return "-".join(words)

    @cached_property
    def series(self) -> str:
        """Equal for cells that differ in world size alone: efficiency compares within a series."""
        return json.dumps(self.model_dump(mode="json", exclude={"world_size"}), sort_keys=True)


def model_key(cell: TrainingCell) -> str:
    """Equal for cells that train the same model, on samples of one length or of several."""
    several = [] if cell.lengths is None else ["lengths"]
    return json.dumps([cell.model, cell.model_options, *several], sort_keys=True)


_LATER_FIELDS = {
    "fused": False,
    "gradient_accumulation": 1,
    "activation_checkpointing": "none",
    "gradient_clipping": None,
    "deterministic": False,
    "loader": None,
    "script": None,
    "lengths": None,
}


def _without_unset(content: dict[str, Any]) -> dict[str, Any]:
    """Fields that a later version added count only where they are set, so that cells of earlier
    runs keep their id."""
    kept = {
        name: value for name, value in content.items() if _LATER_FIELDS.get(name, _ABSENT) != value
    }
    measurement = {
        name: value
        for name, value in content["measurement"].items()
        if name != "warmup_epochs" or value is not None
    }
    return {**kept, "measurement": measurement}


_ABSENT = object()
