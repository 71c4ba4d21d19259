"""Small models of every family, in plain torch and transformers, for comparing torchscale with a
bare loop.

Each builder gives a module that draws its own batch (``make_batch``) and returns its loss, so that
both sides run the same code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import transformers
from torch import Tensor, nn

Batch = dict[str, Tensor]


class Regression(nn.Module):
    """Any network from one tensor to another, with the mean squared error."""

    def __init__(self, network: nn.Module, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.network, self.shape, self.outputs = network, shape, outputs

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss."""
        return nn.functional.mse_loss(self.network(x).float(), y)

    def make_batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Random input and target."""
        return {
            "x": torch.randn(batch_size, *self.shape, generator=generator),
            "y": torch.randn(batch_size, self.outputs, generator=generator),
        }


class Pretrained(nn.Module):
    """A model of transformers, which computes its own loss."""

    def __init__(self, network: nn.Module, draw: Callable[[int, torch.Generator], Batch]) -> None:
        super().__init__()
        self.network, self.make_batch = network, draw

    def forward(self, **batch: Tensor) -> Tensor:
        """The loss."""
        loss: Tensor = self.network(**batch).loss
        return loss


class Recurrent(nn.Module):
    """An LSTM whose last output is projected."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells, self.head = (
            nn.LSTM(width, width, num_layers=2, batch_first=True),
            nn.Linear(width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of the last step."""
        outputs, _ = self.cells(x)
        last: Tensor = self.head(outputs[:, -1])
        return last


class Recommender(nn.Module):
    """A table of embeddings, summed by sample, and a small network."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.table = nn.EmbeddingBag(rows, width, mode="sum")
        self.head = _layers(width, 256, 1)

    def forward(self, items: Tensor, clicked: Tensor) -> Tensor:
        """The loss."""
        return nn.functional.binary_cross_entropy_with_logits(
            self.head(self.table(items)).float(), clicked
        )

    def make_batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Twenty random items a sample."""
        return {
            "items": torch.randint(self.rows, (batch_size, 20), generator=generator),
            "clicked": torch.randint(2, (batch_size, 1), generator=generator).float(),
        }


def _layers(width: int, hidden: int, outputs: int, depth: int = 2) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    widths = [width, *[hidden] * (depth - 1), outputs]
    layers: list[nn.Module] = []
    for inputs, size in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, size), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def mlp(width: int = 512, depth: int = 6) -> nn.Module:
    """Square layers."""
    return Regression(_layers(width, width, width, depth), (width,), width)


def convolutions(width: int = 32, size: int = 32, *, depthwise: bool = False) -> nn.Module:
    """Four convolutions, every second one halving the image; ``depthwise`` ones as mobile networks
    have them."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for stride in (2, 1, 2):
        groups = width if depthwise else 1
        layers += [
            nn.Conv2d(width, width, 3, stride, 1, groups=groups),
            nn.Conv2d(width, width, 1),
            nn.ReLU(),
        ]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return Regression(network, (3, size, size), 10)


def transformer(width: int = 128, length: int = 64) -> nn.Module:
    """Two encoder layers of torch over vectors."""
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Regression(
        nn.Sequential(encoder, nn.Flatten(), nn.Linear(width * length, 16)), (length, width), 16
    )


def lstm(width: int = 128, length: int = 32) -> nn.Module:
    """Two recurrent layers."""
    return Regression(Recurrent(width), (length, width), width)


def recommender(rows: int = 20_000, width: int = 64) -> nn.Module:
    """Embeddings with dense gradients."""
    return Recommender(rows, width)


def gpt2(width: int = 128, length: int = 64) -> nn.Module:
    """A decoder of transformers."""
    config = transformers.GPT2Config(
        vocab_size=2000, n_positions=length, n_embd=width, n_layer=2, n_head=4
    )
    return Pretrained(
        transformers.GPT2LMHeadModel(config), _tokens(2000, length, labels="input_ids")
    )


def bert(width: int = 128, length: int = 64) -> nn.Module:
    """An encoder of transformers."""
    config = transformers.BertConfig(
        vocab_size=2000,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=4 * width,
        max_position_embeddings=length,
    )
    return Pretrained(
        transformers.BertForSequenceClassification(config), _tokens(2000, length, classes=2)
    )


def t5(width: int = 128, length: int = 32) -> nn.Module:
    """An encoder and a decoder of transformers."""
    config = transformers.T5Config(
        vocab_size=2000, d_model=width, d_kv=32, d_ff=4 * width, num_layers=2, num_heads=4
    )
    config.decoder_start_token_id = 0
    return Pretrained(
        transformers.T5ForConditionalGeneration(config), _tokens(2000, length, labels="input_ids")
    )


def vit(width: int = 128, size: int = 32) -> nn.Module:
    """A vision transformer of transformers."""
    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=4 * width,
        image_size=size,
        patch_size=4,
        num_labels=10,
    )

    def draw(batch_size: int, generator: torch.Generator) -> Batch:
        pixels = torch.randn(batch_size, 3, size, size, generator=generator)
        return {
            "pixel_values": pixels,
            "labels": torch.randint(10, (batch_size,), generator=generator),
        }

    return Pretrained(transformers.ViTForImageClassification(config), draw)


def _tokens(
    vocabulary: int, length: int, *, labels: str = "", classes: int = 0
) -> Callable[[int, torch.Generator], Batch]:
    """Draws token ids, with the tokens or a class as labels."""

    def draw(batch_size: int, generator: torch.Generator) -> Batch:
        tokens = torch.randint(vocabulary, (batch_size, length), generator=generator)
        target = tokens if labels else torch.randint(classes, (batch_size,), generator=generator)
        return {"input_ids": tokens, "labels": target}

    return draw
