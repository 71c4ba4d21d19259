"""``hf:PATH/config.json``: the model that a local Hugging Face configuration describes, with random
weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)

from torchscale.catalog.experts import shape_of_hf
from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.images import image_batches, image_inputs
from torchscale.worker.models.interface import Workload
from torchscale.worker.models.text import sequence_length, token_batches

_LEFT_OUT = ("model_type", "torch_dtype", "dtype", "quantization_config", "auto_map")
"""Keys of a configuration that are ignored: storage of its published weights, and remote code. The
cell sets the precision."""
_FORMULA_ERROR = 0.01
"""Share of the parameters by which a formula of sizes may differ from the built module: it leaves
out biases and some norms. Beyond, it is not the formula of this model."""
_TASKS = (
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForMaskedLM,
    AutoModelForCausalLM,
)


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """The class that ``architectures`` names if it is one that can be trained here, else by the
    kind of model.

    Options: ``sequence_length`` (tokens) for text, ``image_size`` and ``num_classes`` for images.
    Code that a configuration points to is not run.

    Raises:
        ValueError: the file is not a configuration of a known model, or its model has no head that
            is supported.
    """
    path = Path(name.partition(":")[2])
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = content["model_type"]
        config = AutoConfig.for_model(
            kind, **{key: value for key, value in content.items() if key not in _LEFT_OUT}
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a configuration of a known model: {type(error).__name__}: {error}"
        ) from error
    config.use_cache = False
    task = _task(config)
    if task is AutoModelForImageClassification:
        images = image_inputs(options, "pixel_values", "labels")
        config.num_labels, config.image_size = images.num_classes, images.image_size
        return Workload(_make(task, config), image_batches(images), images=images)
    positions = getattr(config, "max_position_embeddings", None)
    length = sequence_length(options, positions, str(path))
    module = _make(task, config)
    workload = Workload(module, token_batches(config.vocab_size, length), length)
    shape = shape_of_hf(config.to_dict())
    parameters = sum(parameter.numel() for parameter in module.parameters())
    if shape is None or abs(shape.parameters - parameters) > _FORMULA_ERROR * parameters:
        return workload
    return replace(
        workload,
        active_parameters=parameters - shape.idle_parameters,
        expected_flops=float(shape.forward_flops(length)),
    )


def _make(task: Any, config: Any) -> nn.Module:  # noqa: ANN401 - transformers is not typed
    module = task.from_config(config, trust_remote_code=False)
    assert isinstance(module, nn.Module)  # noqa: S101 - narrows for the type checker
    return module


def _task(config: Any) -> Any:  # noqa: ANN401 - transformers is not typed
    """The model class with its head: the one that the configuration names, else the first that
    supports this model type."""
    named = [getattr(transformers, name, None) for name in config.architectures or ()]
    able = [task for task in _TASKS if type(config) in task._model_mapping]
    for task in able:
        if task._model_mapping[type(config)] in named:
            return task
    if not able:
        raise ValueError(
            f"a model of type {config.model_type!r} has none of the supported heads: "
            "image classification, sequence-to-sequence, masked or causal language model"
        )
    causal = AutoModelForCausalLM in able and bool(getattr(config, "is_decoder", False))
    if causal:
        return AutoModelForCausalLM
    return able[0]
