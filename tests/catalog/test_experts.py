"""Parameters and FLOPs of models with experts by formula, against what their papers state.
``tests/worker/models/test_catalog_facts.py`` holds the formula against torch's counts."""

from __future__ import annotations

from typing import Any

import pytest

from torchscale.catalog.experts import ExpertShape, shape_of_hf, shape_of_options
from torchscale.catalog.models import MODELS

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
    "intermediate_size": 14336,
}
MIXTRAL_8X22B = {
    **MIXTRAL,
    "hidden_size": 6144,
    "num_hidden_layers": 56,
    "num_attention_heads": 48,
    "vocab_size": 32768,
    "intermediate_size": 16384,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "num_experts_per_tok": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
DEEPSEEK_V2 = {
    **DEEPSEEK_V3,
    "model_type": "deepseek_v2",
    "hidden_size": 5120,
    "num_hidden_layers": 60,
    "vocab_size": 102400,
    "num_experts_per_tok": 6,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1,
    "intermediate_size": 12288,
}
QWEN3_235B = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "num_experts_per_tok": 8,
    "num_experts": 128,
    "moe_intermediate_size": 1536,
    "intermediate_size": 12288,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_experts_per_tok": 4,
    "num_local_experts": 128,
    "intermediate_size": 2880,
}
GPT_OSS_20B = {**GPT_OSS_120B, "num_hidden_layers": 24, "num_local_experts": 32}


def shape(config: dict[str, Any]) -> ExpertShape:
    found = shape_of_hf(config)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("config", "total", "active", "counts_embedding"),
    [
        # Mistral's announcements of both.
        (MIXTRAL, 46.7e9, 12.9e9, True),
        (MIXTRAL_8X22B, 141e9, 39e9, True),
        # DeepSeek-V2, abstract; README_WEIGHTS of DeepSeek-V3.
        (DEEPSEEK_V2, 236e9, 21e9, False),
        (DEEPSEEK_V3, 671e9, 36.7e9, False),
        # Qwen3, table 2.
        (QWEN3_235B, 235e9, 22e9, True),
        # gpt-oss model card, table 1, which says that the embedding does not count as active.
        (GPT_OSS_120B, 116.83e9, 5.13e9, False),
        (GPT_OSS_20B, 20.91e9, 3.61e9, False),
    ],
    ids=["8x7B", "8x22B", "V2", "V3", "235B-A22B", "oss-120b", "oss-20b"],
)
def test_published_models_within_one_per_cent(
    config: dict[str, Any], total: float, active: float, counts_embedding: bool
) -> None:
    """FLOPs per token are twice the active parameters of the paper (its embedding left out, which
    is looked up), beside attention's products, which grow with the length."""
    found = shape(config)
    embedding = found.embedding_parameters
    assert found.parameters == pytest.approx(total, rel=0.01)
    stated = found.active_parameters - (0 if counts_embedding else embedding)
    assert stated == pytest.approx(active, rel=0.01)
    in_products = active - (embedding if counts_embedding else 0)
    assert found.forward_flops(1) == pytest.approx(2 * in_products, rel=0.01)


def test_mixtral_by_hand() -> None:
    found = shape(MIXTRAL)
    attention = 4096 * 4096 * 2 + 4096 * 1024 * 2
    expert = 3 * 4096 * 14336
    matrices = 32 * (attention + 4096 * 8 + 2 * expert) + 32000 * 4096
    assert found.active_parameters == matrices + 32000 * 4096 + 65 * 4096
    assert found.parameters == found.active_parameters + 32 * 6 * expert
    # 2 FLOPs for each parameter; queries times keys and weights times values, 32 heads of 128.
    assert found.forward_flops(10) == 2 * 10 * matrices + 32 * 2 * 2 * 10 * 10 * 32 * 128


def test_dense_layers_of_qwen() -> None:
    """Every other layer by the step, and those that are named."""
    plain = shape(QWEN3_235B)
    assert (plain.dense_layers, plain.expert_layers) == (0, 94)
    mixed = shape({**QWEN3_235B, "decoder_sparse_step": 2, "mlp_only_layers": [1, 2]})
    assert (mixed.dense_layers, mixed.dense_size) == (48, 12288)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "llama", **{key: MIXTRAL[key] for key in ("hidden_size", "vocab_size")}},
        {key: value for key, value in MIXTRAL.items() if key != "num_local_experts"},
        {**MIXTRAL, "num_attention_heads": 0},
        {**DEEPSEEK_V3, "v_head_dim": 256},
    ],
)
def test_no_shape_of_other_models(config: dict[str, Any]) -> None:
    assert shape_of_hf(config) is None


def test_active_parameters_of_the_catalog() -> None:
    """Qwen3's paper states 3.3 B, DeepSeek-V2's 2.4 B for V2-Lite (without the embedding's 0.2
    B)."""
    active = {
        name: shape_of_options(facts.options).active_parameters
        for name, facts in MODELS.items()
        if facts.family == "moe"
    }
    assert active["mixtral-8x7b"] == shape(MIXTRAL).active_parameters
    assert active["deepseek-v3"] == shape(DEEPSEEK_V3).active_parameters
    assert active["qwen3-30b-a3b"] == pytest.approx(3.3e9, abs=0.06e9)
    assert active["deepseek-v2-lite"] == pytest.approx(2.4e9 + 102400 * 2048, abs=0.06e9)
