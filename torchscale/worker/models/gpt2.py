"""GPT-2 with its language-model head, from transformers' configuration."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.interface import Workload
from torchscale.worker.models.splits.transformers import context_split
from torchscale.worker.models.text import sequence_length, token_batches

_ARCHITECTURES: dict[str, dict[str, int]] = {
    "tiny-gpt2": {
        "n_embd": 128,
        "n_layer": 2,
        "n_head": 2,
        "vocab_size": 8192,
        "n_positions": 256,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "gpt2": {},
    "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A causal language model; option ``sequence_length`` (tokens). The key-value cache of
    inference is off."""
    config = GPT2Config(use_cache=False, **_ARCHITECTURES[name])
    length = sequence_length(options, config.n_positions, name)
    return Workload(
        GPT2LMHeadModel(config),
        token_batches(config.vocab_size, length),
        length,
        context=context_split(length, _attentions),
    )


def _attentions(module: nn.Module) -> list[nn.Module]:
    assert isinstance(module, GPT2LMHeadModel)  # noqa: S101 - narrows for the type checker
    return [layer.attn for layer in module.transformer.h]
