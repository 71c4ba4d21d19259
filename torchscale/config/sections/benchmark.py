"""The section of a config that says how long and how often is measured, with its presets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from torchscale.config.base import ConfigSection, PositiveInt, PositiveSeconds
from torchscale.config.choices import Preset

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
        "max_steps": 4000,
        "max_seconds": 5.0,
        "target_half_width": 0.05,
        "steady_tolerance": 0.05,
    },
}
"""Defaults of the measurement keys per preset; keys in the config win. ``standard`` is for figures
to publish (an interval within 1 % of the mean, two minutes at most); ``quick`` is for demos and
small machines (5 %, seconds): a few seconds there give no closer interval. Its seconds end it, not
its steps: 400 steps of a tiny model take less than two seconds, and half of such launches were noisy
on an idle machine."""


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
