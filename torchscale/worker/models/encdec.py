"""An encoder-decoder transformer (Vaswani et al., 2017) of any shape, on torch's own layers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.interface import BatchOfTensors, Workload


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """Trained to predict the next target token.

    Options as in ``torch.nn.Transformer``: ``d_model``, ``nhead``, ``num_encoder_layers``,
    ``num_decoder_layers``, ``dim_feedforward``; and ``vocab_size``, ``sequence_length`` (tokens of
    the source, and of the target).

    Raises:
        ValueError: the heads do not divide the width.
    """
    del name
    sizes = {key: int(value) for key, value in options.items()}
    if sizes["d_model"] % sizes["nhead"]:
        raise ValueError(f"d_model {sizes['d_model']} does not divide by nhead {sizes['nhead']}")
    length, vocabulary = sizes.pop("sequence_length"), sizes.pop("vocab_size")

    def make_batch(batch_size: int, generator: torch.Generator) -> BatchOfTensors:
        def tokens() -> Tensor:
            return torch.randint(vocabulary, (batch_size, length), generator=generator)

        return {"source": tokens(), "target": tokens()}

    return Workload(EncoderDecoder(sizes, vocabulary, length), make_batch, length)


class EncoderDecoder(nn.Module):
    """One embedding serves source, target and output; positions are sinusoids; no dropout."""

    positions: Tensor

    def __init__(self, sizes: Mapping[str, int], vocabulary: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, sizes["d_model"])
        nn.init.normal_(self.embedding.weight, std=sizes["d_model"] ** -0.5)
        self.transformer = nn.Transformer(
            sizes["d_model"],
            sizes["nhead"],
            sizes["num_encoder_layers"],
            sizes["num_decoder_layers"],
            sizes["dim_feedforward"],
            dropout=0.0,
            batch_first=True,
        )
        self.register_buffer("positions", _sinusoids(length, sizes["d_model"]), persistent=False)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Mean cross-entropy of each target token given those before it; both inputs (batch,
        length)."""
        shifted = functional.pad(target[:, :-1], (1, 0))  # token 0 begins every target
        hidden = self.transformer(
            self._embed(source), self._embed(shifted), tgt_mask=self.mask, tgt_is_causal=True
        )
        logits = functional.linear(hidden, self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled: Tensor = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return scaled + self.positions.to(scaled.dtype)


def _sinusoids(length: int, width: int) -> Tensor:
    """Positional encoding of section 3.5, (length, width)."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)[:, : width // 2]
    return table
