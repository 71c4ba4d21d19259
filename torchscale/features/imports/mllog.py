"""Logs of MLPerf Training: the settings among the lines that begin with ``:::MLLOG``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.errors import ConfigError
from torchscale.features.imports.batches import place_batches
from torchscale.features.imports.models import known_model
from torchscale.features.imports.names import MLPERF_MODELS, OPTIMIZERS
from torchscale.features.imports.worksheet import Worksheet

_MARK = ":::MLLOG"
_LONGEST_LINE = 100_000
"""Real lines have some hundred characters."""
_MOST_KEYS = 1000
"""Real logs have about a hundred different keys."""
_EVENTS = ("_start", "_stop")
_RESULTS = ("eval_", "tracked_stats", "train_loss", "throughput", "samples_count", "status")
_DEGREES: Mapping[str, str] = {
    "tensor_parallelism": "tensor",
    "pipeline_parallelism": "pipeline",
    "context_parallelism": "cp",
    "expert_parallelism": "ep",
}


def is_mllog(text: str) -> bool:
    """Whether a text is a log of MLPerf."""
    return f"{_MARK} {{" in text


def from_mllog(text: str) -> Translation:
    """The settings in a log of a run of MLPerf Training."""
    data, damaged = _settings(text)
    sheet = Worksheet("MLPerf log", data)
    if damaged:
        sheet.leave(":::MLLOG", f"{damaged} of its lines are no JSON with a key")
    name = str(sheet.take("submission_benchmark") or "")
    if name:
        known = MLPERF_MODELS.get(name.casefold()) or known_model(name)
        sheet.place("models", [known or name], "submission_benchmark")
    _devices(sheet)
    place_batches(
        sheet,
        micro="micro_batch_size",
        accumulation="gradient_accumulation_steps",
        whole="global_batch_size",
    )
    for key in ("max_sequence_length", "sequence_length"):
        sheet.move(key, "model.options.sequence_length")
    sheet.move("opt_base_learning_rate", "training.learning_rate")
    sheet.move("seed", "training.seed")
    optimizer = sheet.take_word("opt_name")
    if optimizer in OPTIMIZERS:
        sheet.place("training.optimizer", OPTIMIZERS[optimizer][0], "opt_name")
    elif optimizer:
        sheet.leave("opt_name", f"{optimizer}: sgd, adam or adamw here")
    _strategy(sheet)
    for key in data:
        if sheet.has((key,)):
            sheet.leave((key,), _reason(key))
    return sheet.done()


def _settings(text: str) -> tuple[dict[str, Data], int]:
    """Key → its first value, and how many marked lines are damaged.

    Raises:
        ConfigError: there are too many keys.
    """
    data: dict[str, Data] = {}
    damaged = 0
    for line in text.splitlines():
        _, mark, rest = line.partition(_MARK)
        if not mark:
            continue
        try:
            entry = json.loads(rest[:_LONGEST_LINE])
            key = entry["key"]
        except (ValueError, KeyError, TypeError, RecursionError):
            damaged += 1
            continue
        value = entry.get("value")
        if isinstance(key, str) and key not in data and not isinstance(value, list | dict):
            data[key] = value
        if len(data) > _MOST_KEYS:
            raise ConfigError(f"more than {_MOST_KEYS:,} different keys; not a log of MLPerf")
    return data, damaged


def _devices(sheet: Worksheet) -> None:
    nodes = sheet.take_whole("number_of_nodes")
    local = sheet.take_whole("accelerators_per_node")
    if local is not None:
        sheet.place("gpu_counts", [local * (nodes or 1)], "accelerators_per_node")
    if nodes is not None and nodes > 1:
        sheet.place("launch.nodes", nodes, "number_of_nodes")


def _strategy(sheet: Worksheet) -> None:
    degrees: dict[str, Data] = {}
    for there, here in _DEGREES.items():
        degree = sheet.take_whole(there)
        if degree is not None and degree > 1:
            degrees[here] = degree
            sheet.result.renamed[there] = f"parallel.strategy.{here}"
    if degrees:
        sheet.place("parallel.strategy", {"name": "hybrid", **degrees})


def _reason(key: str) -> str:
    if key.endswith(_EVENTS):
        return "is an event of the run"
    if key.startswith(_RESULTS):
        return "is a result of the run"
    if key.startswith("submission_"):
        return "is of the submission"
    return "has no place here"
