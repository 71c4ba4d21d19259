"""Llama with its language-model head, from transformers' configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.interface import TensorSplit, Workload
from torchscale.worker.models.splits.transformers import context_split
from torchscale.worker.models.text import sequence_length, token_batches

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "tiny-llama": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 8192,
        "max_position_embeddings": 256,
    },
    "llama-small": {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    },
    "llama-1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "llama-8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    },
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A causal language model; option ``sequence_length`` (tokens). The key-value cache of
    inference is off."""
    config = LlamaConfig(use_cache=False, **_ARCHITECTURES[name])
    length = sequence_length(options, config.max_position_embeddings, name)

    def plan(sequence: bool) -> Mapping[str, ParallelStyle]:
        del sequence
        return _tensor_plan(config.num_hidden_layers)

    return Workload(
        LlamaForCausalLM(config),
        token_batches(config.vocab_size, length),
        length,
        tensor=TensorSplit(config.num_key_value_heads, plan),
        context=context_split(length, _attentions),
    )


def _attentions(module: nn.Module) -> list[nn.Module]:
    assert isinstance(module, LlamaForCausalLM)  # noqa: S101 - narrows for the type checker
    return [layer.self_attn for layer in module.model.layers]


def _tensor_plan(layers: int) -> dict[str, ParallelStyle]:
    """Attention by heads and the feed-forward by its inner dimension. The embedding and the head,
    which may share their weight, stay whole."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel  # noqa: PLC0415 - slow to import

    plan: dict[str, ParallelStyle] = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        for name in (
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "mlp.gate_proj",
            "mlp.up_proj",
        ):
            plan[f"{prefix}.{name}"] = ColwiseParallel()
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            plan[f"{prefix}.{name}"] = RowwiseParallel()
    return plan
