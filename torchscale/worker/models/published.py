"""Models of the catalog that transformers has, of their published sizes and with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import transformers

from torchscale.catalog.model_facts import InputKind, OptionValue
from torchscale.catalog.models import MODELS
from torchscale.worker.models.images import image_batches, image_inputs
from torchscale.worker.models.interface import TensorSplit, Workload
from torchscale.worker.models.splits.transformers import context_split
from torchscale.worker.models.text import sequence_length, token_batches

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_CLASSES: Mapping[str, tuple[str, str]] = {
    "bert": ("BertConfig", "BertForMaskedLM"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "resnet": ("ResNetConfig", "ResNetForImageClassification"),
    "t5": ("T5Config", "T5ForConditionalGeneration"),
    "vit": ("ViTConfig", "ViTForImageClassification"),
}
"""Family → classes of its configuration and of the model with its head. Their modules are imported
by the first look."""


def _encoder(width: int, layers: int, heads: int, inner: int, **other: int) -> dict[str, Any]:
    """Sizes of one stack of layers."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        **other,
    }


def _llama(*sizes: int, kv: int, tokens: int, positions: int, **other: int) -> dict[str, Any]:
    return {
        **_encoder(*sizes, **other),
        "num_key_value_heads": kv,
        "vocab_size": tokens,
        "max_position_embeddings": positions,
        "use_cache": False,  # of keys and values, for inference
    }


def _gpt2(width: int, layers: int, heads: int, **other: int) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": layers, "n_head": heads, "use_cache": False, **other}


def _t5(width: int, head: int, inner: int, layers: int, heads: int, **other: int) -> dict[str, Any]:
    return {
        "d_model": width,
        "d_kv": head,
        "d_ff": inner,
        "num_layers": layers,
        "num_heads": heads,
        "use_cache": False,
        "decoder_start_token_id": 0,
        **other,
    }


def _resnet(layer: str, sizes: list[int], depths: list[int], **other: int) -> dict[str, Any]:
    return {"layer_type": layer, "hidden_sizes": sizes, "depths": depths, **other}


_SMALL, _LARGE = [64, 128, 256, 512], [256, 512, 1024, 2048]
_SIZES: Mapping[str, Mapping[str, Any]] = {
    "tiny-bert": _encoder(128, 2, 2, 512, vocab_size=8192),
    "bert-base": _encoder(768, 12, 12, 3072),
    "bert-large": _encoder(1024, 24, 16, 4096),
    "tiny-gpt2": _gpt2(128, 2, 2, vocab_size=8192, n_positions=256, bos_token_id=0, eos_token_id=0),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "tiny-llama": _llama(128, 2, 4, 384, kv=4, tokens=8192, positions=256),
    "llama-small": _llama(512, 8, 8, 1408, kv=8, tokens=32000, positions=4096),
    "llama-1b": _llama(
        *(2048, 16, 32, 8192),
        kv=8,
        tokens=128256,
        positions=131072,
        head_dim=64,
        tie_word_embeddings=True,
    ),
    "llama-8b": _llama(4096, 32, 32, 14336, kv=8, tokens=128256, positions=8192),
    "tiny-resnet": _resnet("basic", [16, 32, 64, 128], [1, 1, 1, 1], embedding_size=16),
    "resnet18": _resnet("basic", _SMALL, [2, 2, 2, 2]),
    "resnet50": _resnet("bottleneck", _LARGE, [3, 4, 6, 3]),
    "resnet152": _resnet("bottleneck", _LARGE, [3, 8, 36, 3]),
    "tiny-t5": _t5(64, 32, 256, 2, 2, vocab_size=8192),
    "t5-small": _t5(512, 64, 2048, 6, 8),
    "t5-base": _t5(768, 64, 3072, 12, 12),
    "t5-large": _t5(1024, 64, 4096, 24, 16),
    "tiny-vit": _encoder(64, 2, 2, 256, patch_size=8),
    "vit-b": _encoder(768, 12, 12, 3072),
    "vit-l": _encoder(1024, 24, 16, 4096),
}
"""Name → settings of its configuration that are not transformers' defaults."""
_ATTENTIONS: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "gpt2": lambda module: [layer.attn for layer in module.transformer.h],
    "llama": lambda module: [layer.self_attn for layer in module.model.layers],
}
"""Family → attention layers of a model, where its sequences can be split."""


def load(family: str) -> tuple[Any, Any]:
    """The classes of a family's configuration and model, imported."""
    config, model = _CLASSES[family]
    return getattr(transformers, config), getattr(transformers, model)


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """A model with its head. Options: ``sequence_length`` (tokens) for text, of T5 those of the
    source and of the target; ``image_size`` (pixels) and ``num_classes`` for images.

    Raises:
        ValueError: the image does not divide into patches, or the text has too many tokens.
    """
    facts = MODELS[name]
    make_config, make_model = load(facts.family)
    if facts.input_kind is InputKind.IMAGE:
        images = image_inputs(options, "pixel_values", "labels")
        config = make_config(
            num_labels=images.num_classes, image_size=images.image_size, **_SIZES[name]
        )
        patch = getattr(config, "patch_size", 1)
        if images.image_size % patch:
            raise ValueError(
                f"image_size {images.image_size} does not divide by the patches of {patch} pixels"
            )
        return Workload(make_model(config), image_batches(images), images=images)
    config = make_config(**_SIZES[name])
    positions = getattr(config, "max_position_embeddings", None)
    length = sequence_length(options, positions, name)
    workload = Workload(make_model(config), token_batches(config.vocab_size, length), length)
    if facts.family in _ATTENTIONS:
        split = context_split(length, _ATTENTIONS[facts.family])
        workload = replace(workload, context=split)
    if facts.family == "llama":
        workload = replace(workload, tensor=TensorSplit(config.num_key_value_heads, _llama_plan))
    return workload


def _llama_plan(sequence: bool) -> dict[str, ParallelStyle]:
    """Attention by heads and the feed-forward by its inner dimension. The embedding and the head,
    which may share their weight, stay whole."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel  # noqa: PLC0415 - slow to import

    del sequence
    layers = "model.layers.*."
    columns = ("self_attn.[qkv]_proj", "mlp.gate_proj", "mlp.up_proj")
    rows = ("self_attn.o_proj", "mlp.down_proj")
    plan: dict[str, ParallelStyle] = {layers + name: ColwiseParallel() for name in columns}
    return plan | {layers + name: RowwiseParallel() for name in rows}
