"""The model catalogue: facts on models by name, without torch.

Parameter counts are of the module that is trained (with its head), FLOPs of one sample's forward
pass with the default options, a multiply-add being two. Both are counted on the built module by
``tests/worker/models/test_catalog_facts.py`` and compared there with published figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from torchscale.catalog.experts import shape_of_options
from torchscale.catalog.model_facts import (
    CONTEXT,
    EXPERT,
    PIPELINE,
    SEQUENCE,
    TENSOR,
    InputKind,
    ModelFacts,
    OptionValue,
)


def _image(name: str, title: str, family: str, counts: tuple[int, int], *shape: int) -> ModelFacts:
    """Facts on an image classifier; ``shape`` is image_size, num_classes."""
    size, classes = shape
    options = MappingProxyType({"image_size": size, "num_classes": classes})
    return ModelFacts(name, title, family, *counts, InputKind.IMAGE, options)


def _text(
    name: str, title: str, family: str, counts: tuple[int, int], length: int, *splits: str
) -> ModelFacts:
    options = MappingProxyType({"sequence_length": length})
    return ModelFacts(name, title, family, *counts, InputKind.TOKENS, options, frozenset(splits))


def _llama(name: str, title: str, counts: tuple[int, int], length: int, heads: int) -> ModelFacts:
    """``heads``: of keys and values."""
    return replace(_text(name, title, "llama", counts, length, TENSOR, CONTEXT), heads=heads)


def _encdec(
    name: str, title: str, counts: tuple[int, int], shape: tuple[int, int, int, int, int, int]
) -> ModelFacts:
    """``shape``: d_model, nhead, layers of each side, dim_feedforward, vocab_size,
    sequence_length."""
    width, heads, layers, inner, vocabulary, length = shape
    options: dict[str, OptionValue] = {
        "d_model": width,
        "nhead": heads,
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "dim_feedforward": inner,
        "vocab_size": vocabulary,
        "sequence_length": length,
    }
    return ModelFacts(name, title, "encdec", *counts, InputKind.TOKENS, MappingProxyType(options))


def _decoder(
    name: str, title: str, counts: tuple[int, int], shape: tuple[int, int, int, int, int]
) -> ModelFacts:
    """``shape``: hidden_size, num_layers, num_heads, vocab_size, sequence_length."""
    names = ("hidden_size", "num_layers", "num_heads", "vocab_size", "sequence_length")
    options: Mapping[str, OptionValue] = MappingProxyType(dict(zip(names, shape, strict=True)))
    splits = frozenset({TENSOR, SEQUENCE, PIPELINE, CONTEXT})
    return ModelFacts(name, title, "decoder", *counts, InputKind.TOKENS, options, splits)


def _moe(name: str, title: str, **shape: int) -> ModelFacts:
    """A decoder with experts; ``shape``: its options where they differ from those of Mixtral's
    kind (grouped-query attention, no shared experts, no dense layers)."""
    options: dict[str, OptionValue] = {**_MOE_OPTIONS, **shape}
    sizes = shape_of_options(options)
    return ModelFacts(
        name,
        title,
        "moe",
        sizes.parameters,
        sizes.forward_flops(int(options["sequence_length"])),
        InputKind.TOKENS,
        MappingProxyType(options),
        frozenset({EXPERT, CONTEXT, TENSOR, PIPELINE}),
    )


_MOE_OPTIONS: Mapping[str, OptionValue] = MappingProxyType(
    {
        "shared_experts": 0,
        "dense_layers": 0,
        "dense_size": 0,
        "kv_rank": 0,
        "query_rank": 0,
        "rope_size": 0,
        "balance": 0.01,
        "skew": 0.0,
    }
)
"""0.01 is the weight of Switch Transformer's loss for load balancing (Fedus et al., 2022)."""
MAY_BE_ZERO = frozenset(_MOE_OPTIONS)
"""Options that may be 0; others are sizes of at least 1."""


_ALL = (
    _image("resnet18", "ResNet-18", "resnet", (11_689_512, 3_628_146_688), 224, 1000),
    _image("resnet50", "ResNet-50", "resnet", (25_557_032, 8_178_368_512), 224, 1000),
    _image("resnet152", "ResNet-152", "resnet", (60_192_808, 23_027_253_248), 224, 1000),
    _image("vit-b", "ViT-B/16", "vit", (86_567_656, 35_127_656_448), 224, 1000),
    _image("vit-l", "ViT-L/16", "vit", (304_326_632, 123_109_425_152), 224, 1000),
    _text("bert-base", "BERT-base", "bert", (109_514_298, 121_244_221_440), 512),
    _text("bert-large", "BERT-large", "bert", (335_174_458, 368_085_827_584), 512),
    _text("gpt2", "GPT-2", "gpt2", (124_439_808, 291_648_307_200), 1024, CONTEXT),
    _text("gpt2-medium", "GPT-2 medium", "gpt2", (354_823_168, 826_951_073_792), 1024, CONTEXT),
    _text("gpt2-large", "GPT-2 large", "gpt2", (774_030_080, 1_774_570_700_800), 1024, CONTEXT),
    _text("gpt2-xl", "GPT-2 XL", "gpt2", (1_557_611_200, 3_506_703_564_800), 1024, CONTEXT),
    _llama("llama-small", "Llama small", (58_466_816, 103_347_650_560), 1024, 8),
    _llama("llama-1b", "Llama 3.2 1B", (1_235_814_400, 5_611_374_772_224), 2048, 8),
    _llama("llama-8b", "Llama 3 8B", (8_030_261_248, 32_938_104_193_024), 2048, 8),
    _text("t5-small", "T5-small", "t5", (60_506_624, 71_605_157_888), 512),
    _text("t5-base", "T5-base", "t5", (222_903_552, 257_194_721_280), 512),
    _text("t5-large", "T5-large", "t5", (737_668_096, 832_552_566_784), 512),
    _encdec(
        "encdec", "encoder-decoder 3.5M", (3_486_208, 964_689_920), (128, 4, 3, 512, 16384, 128)
    ),
    _encdec(
        "encdec-60m",
        "encoder-decoder 60M",
        (60_917_760, 71_940_702_208),
        (512, 8, 6, 2048, 32768, 512),
    ),
    _encdec(
        "encdec-220m",
        "encoder-decoder 220M",
        (223_644_672, 257_698_037_760),
        (768, 12, 12, 3072, 32768, 512),
    ),
    _encdec(
        "encdec-2.9b",
        "encoder-decoder 2.9B",
        (2_887_262_208, 3_109_556_322_304),
        (2048, 32, 24, 8192, 32768, 512),
    ),
    _decoder(
        "decoder-small", "decoder 134M", (134_105_856, 262_932_529_152), (768, 12, 12, 32000, 1024)
    ),
    _decoder(
        "decoder-medium",
        "decoder 367M",
        (367_576_064, 788_663_369_728),
        (1024, 24, 16, 32000, 1024),
    ),
    _decoder(
        "decoder-large",
        "decoder 1.3B",
        (1_339_131_904, 6_040_871_501_824),
        (2048, 24, 16, 32000, 2048),
    ),
    _moe(
        "moe-small",
        "MoE small",
        hidden_size=1024,
        num_layers=12,
        num_heads=16,
        num_kv_heads=4,
        head_size=64,
        vocab_size=32000,
        num_experts=16,
        experts_per_token=2,
        expert_size=1024,
        shared_experts=1,
        sequence_length=1024,
    ),
    _moe(
        "mixtral-8x7b",
        "Mixtral 8x7B",
        hidden_size=4096,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        head_size=128,
        vocab_size=32000,
        num_experts=8,
        experts_per_token=2,
        expert_size=14336,
        sequence_length=2048,
    ),
    _moe(
        "qwen3-30b-a3b",
        "Qwen3 30B-A3B",
        hidden_size=2048,
        num_layers=48,
        num_heads=32,
        num_kv_heads=4,
        head_size=128,
        vocab_size=151936,
        num_experts=128,
        experts_per_token=8,
        expert_size=768,
        sequence_length=2048,
    ),
    _moe(
        "deepseek-v2-lite",
        "DeepSeek-V2-Lite",
        hidden_size=2048,
        num_layers=27,
        num_heads=16,
        num_kv_heads=16,
        head_size=128,
        vocab_size=102400,
        num_experts=64,
        experts_per_token=6,
        expert_size=1408,
        shared_experts=2,
        dense_layers=1,
        dense_size=10944,
        kv_rank=512,
        rope_size=64,
        sequence_length=2048,
    ),
    _moe(
        "deepseek-v3",
        "DeepSeek-V3",
        hidden_size=7168,
        num_layers=61,
        num_heads=128,
        num_kv_heads=128,
        head_size=128,
        vocab_size=129280,
        num_experts=256,
        experts_per_token=8,
        expert_size=2048,
        shared_experts=1,
        dense_layers=3,
        dense_size=18432,
        kv_rank=512,
        query_rank=1536,
        rope_size=64,
        sequence_length=4096,
    ),
    _image("tiny-resnet", "tiny ResNet", "resnet", (310_746, 3_172_864), 32, 10),
    _image("tiny-vit", "tiny ViT", "vit", (114_250, 3_884_800), 32, 10),
    _text("tiny-bert", "tiny BERT", "bert", (1_536_128, 190_840_832), 64),
    _text("tiny-gpt2", "tiny GPT-2", "gpt2", (1_478_144, 188_743_680), 64, CONTEXT),
    _llama("tiny-llama", "tiny Llama", (2_523_776, 192_937_984), 64, 4),
    _text("tiny-t5", "tiny T5", "t5", (754_560, 102_760_448), 64),
    _decoder("tiny-decoder", "tiny decoder", (1_311_872, 142_606_336), (128, 4, 4, 2048, 64)),
    _moe(
        "tiny-moe",
        "tiny MoE",
        hidden_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_size=32,
        vocab_size=2048,
        num_experts=8,
        experts_per_token=2,
        expert_size=128,
        shared_experts=1,
        sequence_length=64,
    ),
)

MODELS: Mapping[str, ModelFacts] = MappingProxyType({facts.name: facts for facts in _ALL})
"""Every catalogued model by name."""

_IMAGE_OPTIONS: Mapping[str, OptionValue] = MappingProxyType(
    {"image_size": 224, "num_classes": 1000}
)
_LIBRARIES = {
    "torchvision": (InputKind.IMAGE, _IMAGE_OPTIONS),
    "timm": (InputKind.IMAGE, _IMAGE_OPTIONS),
    "hf": (None, MappingProxyType({**_IMAGE_OPTIONS, "sequence_length": 512})),
}


def find_model(name: str) -> ModelFacts | None:
    """A catalogued model, or ``torchvision:NAME``, ``timm:NAME``, ``hf:PATH/config.json``; ``None``
    for others."""
    library, colon, rest = name.partition(":")
    if not colon or library not in _LIBRARIES:
        return MODELS.get(name)
    if not rest or (library == "hf" and not rest.endswith(".json")):
        return None
    kind, options = _LIBRARIES[library]
    family = "huggingface" if library == "hf" else library
    return ModelFacts(name, name, family, None, None, kind, options)


def is_import_path(name: str) -> bool:
    """Whether ``name`` points at a user's own builder (``package.module:function``)."""
    module, colon, function = name.partition(":")
    parts = (*module.split("."), *function.split("."))
    return bool(colon) and module not in _LIBRARIES and all(part.isidentifier() for part in parts)
