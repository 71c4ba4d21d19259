"""T5 with its language-model head, from transformers' configuration."""

from __future__ import annotations

from collections.abc import Mapping

from transformers import T5Config, T5ForConditionalGeneration

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.interface import Workload
from torchscale.worker.models.text import token_batches

_ARCHITECTURES: dict[str, dict[str, int]] = {
    "tiny-t5": {
        "d_model": 64,
        "d_kv": 32,
        "d_ff": 256,
        "num_layers": 2,
        "num_heads": 2,
        "vocab_size": 8192,
    },
    "t5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "t5-large": {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A text-to-text model; option ``sequence_length`` (tokens of the source, and of the
    target)."""
    config = T5Config(use_cache=False, decoder_start_token_id=0, **_ARCHITECTURES[name])
    length = int(options["sequence_length"])
    return Workload(
        T5ForConditionalGeneration(config), token_batches(config.vocab_size, length), length
    )
