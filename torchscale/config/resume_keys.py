"""Which keys of a config may change when a run is resumed. Any other change makes its results
incomparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchscale.config.experiment import Experiment

MAY_CHANGE: Mapping[str, str] = {
    "models": "an axis: a new value adds cells",
    "batch_sizes": "an axis: a new value adds cells",
    "gpu_counts": "an axis: a new value adds cells",
    "nodes": "an axis: a new value adds cells",
    "training.precision": "an axis: a new value adds cells",
    "training.optimizer": "an axis: a new value adds cells",
    "training.fused": "an axis: a new value adds cells",
    "training.gradient_accumulation": "an axis: a new value adds cells",
    "training.activation_checkpointing": "an axis: a new value adds cells",
    "data.source": "an axis: a new value adds cells",
    "data.packing": "an axis: a new value adds cells",
    "model.channels_last": "an axis: a new value adds cells",
    "model.compile": "an axis: a new value adds cells",
    "parallel.strategy": "an axis: a new value adds cells",
    "measure": "adds cells of other kinds",
    "collectives": "a changed setting makes other cells",
    "memory": "a changed setting makes other cells",
    "checkpoint": "a changed setting makes other cells",
    "hardware": "a changed setting makes other cells; declared links and peaks judge figures and "
    "change none",
    "benchmark.repeats": "more launches of the same cells",
    "benchmark.cell_seconds": "bounds a launch, and changes no figure of those that end within it",
    "benchmark.skip_larger_batches": "decides which launches are tried",
    "launch.timeout_seconds": "bounds a launch, and changes no figure of those that end within it",
    "launch.stall_timeout_seconds": "bounds a launch, and changes no figure of those that end "
    "within it",
    "launch.nodes": "more nodes allow larger counts; records name the node of each rank",
    "launch.join_timeout_seconds": "bounds a wait before the first launch",
    "launch.node_timeout_seconds": "decides when a silent node is lost",
    "launch.isolation": "records name the launches that shared processes",
    "profiling": "recordings are apart from measurements",
    "export": "copies figures elsewhere, between launches",
    "telemetry": "read by a process beside the ranks",
}
"""Key, or section for all its keys → why it may change."""


def fixed_values(config: Experiment) -> dict[str, Any]:
    """The values that must stay as they are, by key (``section.key``), as JSON has them."""
    return {key: value for key, value in _flat(config) if not _may_change(key)}


def _may_change(key: str) -> bool:
    return key in MAY_CHANGE or key.partition(".")[0] in MAY_CHANGE


def _flat(config: Experiment) -> Iterator[tuple[str, Any]]:
    for name, value in config.model_dump(mode="json").items():
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        else:
            yield name, value
