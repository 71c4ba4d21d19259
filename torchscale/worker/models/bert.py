"""BERT with its masked-language-model head, from transformers' configuration."""

from __future__ import annotations

from collections.abc import Mapping

from transformers import BertConfig, BertForMaskedLM

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.interface import Workload
from torchscale.worker.models.text import sequence_length, token_batches

_ARCHITECTURES: dict[str, dict[str, int]] = {
    "tiny-bert": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 8192,
    },
    "bert-base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "bert-large": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A masked-language model; option ``sequence_length`` (tokens)."""
    config = BertConfig(**_ARCHITECTURES[name])
    length = sequence_length(options, config.max_position_embeddings, name)
    return Workload(BertForMaskedLM(config), token_batches(config.vocab_size, length), length)
